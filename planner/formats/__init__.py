"""Read and write files of other programs: topologies, node states, and placements for schedulers."""
