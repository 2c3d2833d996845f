"""Pictures of answers: plots of a sweep's rows, and a plan's page with its own small SVG drawings."""
