"""The power flow of the split's MILP, and what it must survive."""
