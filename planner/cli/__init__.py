"""The command line: the commands of `planner`, their options, and the console that they print to."""
