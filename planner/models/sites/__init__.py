"""The split of a campus over sites: a MILP over the grid."""
