"""planner: plans the datacenters that train the largest AI models, from megawatts to ranks, with proofs."""

__version__ = "0.1.0"
