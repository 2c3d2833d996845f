"""Place a job on a cluster, with the fewest split groups first."""
