"""Grids from other people's files: one module per format, each of which makes a draft; `assemble` turns a draft into a grid."""
