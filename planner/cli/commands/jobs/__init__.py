"""Commands on the jobs of a running cluster: make room, stop, resize, admit."""
