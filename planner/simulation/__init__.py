"""Flows on a wired fabric: routes by transport, queues and pauses at switches, and the slowdowns that follow."""
