"""The sites of a joint plan: the MILP that chooses them, the fibre between them, and their sections of a plan."""
