"""Layouts in whole blocks of racks: their racks, the order of interleaved passes, and the time of their step."""
