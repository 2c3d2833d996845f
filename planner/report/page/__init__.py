"""Plans as one self-contained page."""
