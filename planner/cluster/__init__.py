"""Real clusters: jobs, topologies, placements and hostlists."""
