"""Stops of a running job: how often they come, what they cost, and the spares that shorten them."""
