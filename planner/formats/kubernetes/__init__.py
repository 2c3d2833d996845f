"""Kubernetes' nodes, Kueue and Volcano."""
