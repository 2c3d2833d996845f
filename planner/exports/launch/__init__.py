"""A plan's layout as what a training framework is started with: flags, pipeline layout and environment."""
