"""The checker's rules, one file per decision; planner.check is their face."""
