"""Compute the counts, cost, power and slowdowns of a fabric and its links."""
