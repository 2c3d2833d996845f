"""One module per format of grid data, each of which makes a draft."""
