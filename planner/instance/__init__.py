"""What the user gives, part by part, and how it is read."""
