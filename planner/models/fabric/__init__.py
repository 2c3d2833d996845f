"""The fabric of one site: the cheapest that can be wired and carries the traffic."""
