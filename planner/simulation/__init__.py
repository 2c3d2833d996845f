"""Flow-level simulation of a fabric's real wiring: who sends to whom, over which cables, how fast, and who is paused."""
