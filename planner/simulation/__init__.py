"""Flows on a wired fabric: routes by transport, max-min fair rates, pauses, and the slowdowns that follow."""
