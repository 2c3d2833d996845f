"""The bound of the joint optimum again, from physics alone: every column of the declared space by its least time."""
