"""Rules of the layout, of pools of different GPUs, and of the model that was chosen."""
