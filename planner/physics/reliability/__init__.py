"""Compute the rate and cost of the stops of a running job, and the effect of spares on them."""
