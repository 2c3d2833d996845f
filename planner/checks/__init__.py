"""The checker of plans: every rule checked again from physics alone, without any formulation or solver."""
