"""Solvers behind one Outcome: HiGHS (direct and through Pyomo) and CP-SAT, their progress and signals."""
