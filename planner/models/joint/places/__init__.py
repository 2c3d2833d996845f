"""The sites of a joint plan: the MILP that chooses them, what joins them, and what a plan states of both."""
