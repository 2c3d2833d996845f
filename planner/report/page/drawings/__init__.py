"""Drawings of a plan as plain SVG."""
