"""The decisions of a plan, taken and explained."""
