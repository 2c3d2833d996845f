"""Split a campus of racks over sites by a MILP with the rules of the grid."""
