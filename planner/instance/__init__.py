"""Types of an instance, part by part, and their reading and checking."""
