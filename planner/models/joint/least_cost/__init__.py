"""The least cost of a plan by a deadline: the joint optimum with the roles of time and money exchanged."""
