"""Power, grid, fibre and money."""
