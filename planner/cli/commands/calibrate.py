"""`planner calibrate`: constants of one's own cluster from a few measured steps."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.console import DONE
from planner.files import require_writable, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.calibration.measured import MeasuredConstants

MEASURED_HELP = (
    "CSV table, a measured step a line. Columns (absent: default): model (a name of the catalogue; layers: first so "
    "many) or layers, hidden, heads, kv_heads (heads), ffn (4 hidden), vocab, gated (no), tied (yes); gpus or DP; TP, "
    "PP, CP, EP, VP (1); seq; micro_batch (1); micro_batches, or global_batch; precision (bf16); recompute (none, "
    "selective, full); zero (1); sequence_parallel (as the stack has it); nic_gbps (the accelerator's); step_ms or "
    "step_s; accelerator and software in place of the options. Names of Megatron-LM's options will do too."
)


def calibrate(
    measured: Annotated[Path, typer.Argument(help=MEASURED_HELP)],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the constants here (JSON).")] = None,
    accelerator: Annotated[str | None, typer.Option(help="Accelerator of the catalogue that ran all lines.")] = None,
    software: Annotated[str | None, typer.Option(help="Software stack of the catalogue; megatron-core.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the constants as JSON and nothing else.")] = False,
) -> None:
    """Fit the constants of your cluster to about ten of your own steps, for `--constants` of other commands.

    Vary the number of micro-batches at one layout: that separates what a step costs once from what a micro-batch costs.
    """
    import planner

    require_writable(output)
    constants = planner.calibrate(measured, accelerator=accelerator, software=software)
    text = constants.model_dump_json(indent=1)
    if output is not None:
        write_atomically(output, text + "\n")
    print(text if as_json else "\n".join(table(constants)))
    raise typer.Exit(DONE)


def table(c: "MeasuredConstants") -> "Iterator[str]":
    """Write what the lines determine with its intervals, what they move with it, what stays, and each line's errors."""
    yield f"{c.accelerator}, {c.software}: {c.number_of_lines} lines of {c.measured}, noise {c.noise:.1%}"
    yield f"{'DETERMINED':52}{'value':>11}{'90 % interval':>24}{'catalogue':>12}"
    alone = {path: x for path, x in c.values.items() if not x.shared_with}
    for path, x in alone.items():
        low, high = x.interval
        yield f"  {path:50}{x.value:>11.4g}{f'{low:.4g} to {high:.4g}':>24}{x.catalogue:>12.4g}"
    if not alone:
        yield "  none alone: give more lines, with other layouts and micro-batches"
    yield f"{'MOVED WITH OTHERS':52}{'value':>11}{'catalogue':>12}"
    for path, x in c.values.items():
        if path not in alone:
            yield f"  {path:50}{x.value:>11.4g}{x.catalogue:>12.4g}  {x.shared_with}"
    yield f"{'AS IN THE CATALOGUE':52}{'value':>11}"
    for path, kept in c.kept.items():
        yield f"  {path:50}{kept.value:>11.4g}  {kept.reason}"
    yield f"{'LINE':>6}{'measured':>14}{'predicted':>14}{'error':>9}{'without the line':>18}{'by the catalogue':>18}"
    for line in c.lines:
        before = line.catalogue_seconds / line.measured_seconds - 1
        seconds = f"{line.measured_seconds:>12.4g} s{line.predicted_seconds:>12.4g} s"
        left_out = "" if line.left_out_error is None else f"{line.left_out_error:+.1%}"
        yield f"{line.line:>6}{seconds}{line.error:>+9.1%}{left_out:>18}{before:>+18.1%}"
    known = [abs(line.left_out_error) for line in c.lines if line.left_out_error is not None]
    if known:
        mean = sum(abs(line.catalogue_seconds / line.measured_seconds - 1) for line in c.lines) / len(c.lines)
        yield f"a line left out is predicted with {sum(known) / len(known):.1%} on average, by the catalogue {mean:.1%}"
