"""Reports of plans for people: a summary, a comparison, plots and pages."""
