"""Slurm's topologies, node states and jobs."""
