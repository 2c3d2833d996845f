"""Solve again and again: what is kept between solves, and the plan that a solve starts from."""
