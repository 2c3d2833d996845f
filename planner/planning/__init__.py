"""Take the decisions of a plan, in order, and explain them."""
