"""Make the statements on a plan, once: the summary, the page, comparisons and notebooks render them."""
