"""Data of an existing cluster: hostlists of its nodes, its topology, a job to place on it, and its placement."""
