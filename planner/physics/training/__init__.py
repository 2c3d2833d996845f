"""The training step: work, memory, exchanges and schedule."""
