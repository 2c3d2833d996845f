"""Rules of the fabric, its cables, the placement on it, and the WAN gateway."""
