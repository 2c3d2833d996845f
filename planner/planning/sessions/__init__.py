"""Solve repeatedly: results that are kept between solves, and the plan from which a solve starts."""
