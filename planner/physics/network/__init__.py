"""The fabric and its links: what can be wired, what it costs, how it slows traffic."""
