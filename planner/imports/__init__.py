"""Grids from other tools' files: one reader a format makes a draft, which `read_grid` turns into a grid."""
