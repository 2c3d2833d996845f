"""The commands of the command line by topic: each parses, calls and prints."""
