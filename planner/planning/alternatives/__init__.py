"""What is solved around a plan: instances with a little more of a limit, and with less and less money."""
