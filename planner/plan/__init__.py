"""What comes back: the decisions, their metrics and their certificates."""
