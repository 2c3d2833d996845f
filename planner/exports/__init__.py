"""Files that others read: a fabric as a graph, a cable list, a scheduler's topology and a picture."""
