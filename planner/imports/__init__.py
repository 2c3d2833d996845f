"""Grids from other tools' files: one reader a format makes a draft, and `assemble` turns it into a grid."""
