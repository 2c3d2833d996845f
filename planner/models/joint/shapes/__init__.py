"""The plan of one shape (blocks by site) of a column: the MILP that chooses its sites, their fibre and their prices."""
