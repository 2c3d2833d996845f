"""What an explanation solves beside the plan: instances with a little more of a limit."""
