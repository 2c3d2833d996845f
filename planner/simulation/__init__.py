"""Simulate flows on a wired fabric: routes by transport, queues and pauses at switches, and their slowdowns."""
