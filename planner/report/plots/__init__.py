"""Plots of a sweep's rows, of a plan and of a curve on matplotlib axes."""
