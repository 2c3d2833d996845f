"""The checker: every rule again, from physics alone, without any formulation or solver."""
