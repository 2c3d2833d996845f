"""A web page on this machine, on which a user asks one instance many questions."""
