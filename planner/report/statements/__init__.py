"""What a plan says, made once: the summary, the page, comparisons and notebooks render these statements."""
