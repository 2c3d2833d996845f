"""Rules of the sites: the split, the power flow, its scenarios, and the wide area."""
