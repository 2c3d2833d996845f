"""While a solve runs: what it reports, and whose turn it is."""
