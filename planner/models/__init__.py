"""One formulation per decision: data in, decision and certificate out."""
