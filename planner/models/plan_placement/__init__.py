"""The placement of a plan's own stages on the leaf domains of its fabric."""
