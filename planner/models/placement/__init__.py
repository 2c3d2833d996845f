"""A job's placement on a cluster: fewest split groups first."""
