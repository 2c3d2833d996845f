"""Sweeps: axes, points, rows, the file that stores them, and the workers that solve them."""
