"""The library's API: its public calls, each of which loads what it needs.

Every call raises PlannerError where its input cannot be used; the message says where and what to do.
"""
