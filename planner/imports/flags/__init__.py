"""A user's own training run, read from a framework's flags or configuration, as pins of the layout."""
