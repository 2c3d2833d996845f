"""Reports of plans as one self-contained HTML page."""
