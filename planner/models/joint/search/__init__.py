"""The search for the joint optimum: one best-first loop with three goals, fewest days, least capital and the curve."""
