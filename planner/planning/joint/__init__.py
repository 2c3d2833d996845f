"""The plan of a joint optimum: its sections, its proof, and what a plan without decisions says."""
