"""The branch and bound over columns: its open nodes, how each is expanded, its first incumbents, and what it keeps."""
