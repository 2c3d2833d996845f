"""Solve instances around a plan: with a little more of a limit, and with less and less money."""
