"""The commands of the command line that do not plan: one file each, parse, call, print."""
