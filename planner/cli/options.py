"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

InstanceFile = Annotated[
    Path, typer.Argument(help="Instance (JSON or YAML), a plan for its instance, or a name that ships, such as 5gw.")
]
PlanFile = Annotated[Path, typer.Argument(help="Plan file (JSON).")]
Pins = Annotated[list[str] | None, typer.Option("--pin", help="Fix a decision: PATH=VALUE.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", help="Change the instance: PATH=VALUE, PATH=x1.2, PATH=+100 or PATH=-20%."),
]
Gap = Annotated[float | None, typer.Option(help="Stop at this relative gap to the proven bound.")]
Seed = Annotated[int, typer.Option(help="Seed of the solvers.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress on stderr.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="All that the plan says, proofs included.")]
Log = Annotated[Path | None, typer.Option("--log", help="Add lines of progress with timestamps to this file.")]
InsteadOfStdout = Annotated[Path | None, typer.Option("-o", "--output", help="Write here in place of stdout.")]
TopologyName = Annotated[str | None, typer.Option(help="Which topology of a topology.yaml; its default unless given.")]
NodeLabels = Annotated[
    list[str] | None, typer.Option(help="Kubernetes label that names a switch above a node; once a tier, leaf first.")
]
Constants = Annotated[
    Path | None,
    typer.Option(help="Constants of your cluster, from `planner calibrate`; they replace the catalogue's."),
]
