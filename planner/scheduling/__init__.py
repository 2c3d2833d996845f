"""Scheduling on a warm cluster: jobs placed, queued, moved, repaired and resized."""
