"""What other programs read and write: topologies, node states, and placements for their schedulers."""
