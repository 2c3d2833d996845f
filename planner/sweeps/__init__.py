"""Batch sweeps: axes, points, rows, the file that keeps them, and the workers that solve them."""
