"""The layers and recomputed layers of every stage of one column, proven again by a list of all splits."""
