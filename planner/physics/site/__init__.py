"""Compute the power, the grid's limits, the fibre and the money of sites."""
