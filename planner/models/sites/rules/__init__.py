"""The rules of the site split as objects: one function a rule, with all that searches and reports must know of it."""
