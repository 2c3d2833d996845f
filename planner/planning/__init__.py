"""Planning: the decisions of a plan, taken and explained."""
