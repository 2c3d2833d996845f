"""Changes of a running cluster: failed nodes replaced, jobs stopped, whole leaves freed."""
