"""Import files of other tools: grids (by `read_grid`), models, training runs and first instances."""
