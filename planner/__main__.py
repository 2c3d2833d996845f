"""Run the command line as `python -m planner`."""

from planner.cli.main import main

main()
