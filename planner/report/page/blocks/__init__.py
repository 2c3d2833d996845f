"""The blocks of a plan's section."""
