"""Compute the work, memory, exchanges and schedule of a training step."""
