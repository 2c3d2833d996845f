"""A cluster kept warm: jobs admitted, placed, repaired and moved."""
