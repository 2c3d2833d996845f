"""Backends: how to run HiGHS (direct and through Pyomo) and CP-SAT; one Outcome for all."""
