"""The layout of a training step: the fastest of the declared space."""
