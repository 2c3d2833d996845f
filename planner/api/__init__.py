"""The library: its calls, each of which loads what it needs."""
