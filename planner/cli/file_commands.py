"""Other tools' files and a first instance: `planner init`, `catalogue`, `calibrate`, `import`, `export`, `grid`."""

import json
import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Typer

import planner
from planner.cli import console
from planner.errors import InputError, hint
from planner.files import read_json, read_text, write_atomically
from planner.imports.command_options import GridOptions, Wish
from planner.units import aligned


def init(
    output: console.InsteadOfStdout = None,
    *,
    wish: Wish,
    force: Annotated[bool, "Write over a file that is there."] = False,
) -> None:
    """Write a short instance with comments (YAML) that `planner solve` takes as it is."""
    from planner.imports.instance_file import first_instance

    if output is not None and output.exists() and not force:
        raise InputError(f"{output}: is there already; name another file, or give --force")
    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise InputError(f"{output}: must end in .yaml, which has comments; rename it")
    console.print_or_write(first_instance(wish, output), output)
    if output is not None:
        print(f"{output}: solve it by `planner solve {output} -o plan.json`")


COLUMNS = 96  # of a source in a list


def catalogue(
    kind: Annotated[
        str | None, Argument(help="models, accelerators, racks, switches, precisions, instances, ...; all kinds.")
    ] = None,
    name: Annotated[str | None, Argument(help="One entry, printed whole (JSON).")] = None,
    as_json: Annotated[bool, "Print the entries as JSON."] = False,
) -> None:
    """List names that an instance may use, with their main figures; one entry whole with its sources."""
    from planner.report.tables import KINDS, entries

    if kind is None:
        found = {part: entries(part) for part in KINDS}
        counts = aligned([[part, f"{len(named)} entries"] for part, named in found.items()], left=1)
        print(json.dumps({part: sorted(named) for part, named in found.items()}, indent=1) if as_json else counts)
        return
    known = entries(kind)
    if name is not None and name not in known:
        raise InputError(f"catalogue {kind}: {name!r} is not in it; {hint(name, sorted(known))}")
    if name is not None or as_json:
        print(json.dumps(known if name is None else known[name], indent=1, ensure_ascii=False))
        return
    # A table of the entries of a kind that has figures; else a list with the source of each, cut to fit a terminal.
    headings, read = KINDS[kind]
    rows = [[kind, *headings]] if headings else []
    for entry_name, entry in known.items():
        if headings:
            values = read(entry) if callable(read) else [entry.get(key) for key in read]
            numbers = [f"{x:,g}" if isinstance(x, (int, float)) else x for x in values]
            rows.append([entry_name, *("-" if x is None else str(x) for x in numbers)])
        else:
            source = entry.get("source") or entry.get("note", "")
            text = source if isinstance(source, str) else ""
            text = text if len(text) <= COLUMNS else f"{text[:COLUMNS].rsplit(' ', 1)[0]} …"
            rows.append([f"{entry_name:24}{text}".rstrip()])
    print(aligned(rows, left=1))


MEASURED_HELP = (
    "CSV table, a measured step a line. Columns (absent: default): model (a name of the catalogue; layers: first so "
    "many) or layers, hidden, heads, kv_heads (heads), ffn (4 hidden), vocab, gated (no), tied (yes); gpus or DP; TP, "
    "PP, CP, EP, VP (1); seq; micro_batch (1); micro_batches, or global_batch; precision (bf16); recompute (none, "
    "selective, full); zero (1); sequence_parallel (as the stack has it); nic_gbps (the accelerator's); step_ms or "
    "step_s; accelerator and software in place of the options. Names of Megatron-LM's options will do too."
)


def calibrate(
    measured: Annotated[Path, Argument(help=MEASURED_HELP)],
    output: Annotated[Path | None, "Write the constants here (JSON)."] = None,
    accelerator: Annotated[str | None, "Accelerator of the catalogue that ran all lines."] = None,
    software: Annotated[str | None, "Software stack of the catalogue; megatron-bridge."] = None,
    as_json: Annotated[bool, "Print the constants as JSON and nothing else."] = False,
) -> None:
    """Fit the constants of your cluster to about ten of your own steps, for `--constants` of other commands.

    Vary the number of micro-batches at one layout: that separates what a step costs once from what a micro-batch costs.
    """
    constants = planner.calibrate(measured, accelerator=accelerator, software=software)
    console.write_model(constants, output)
    if as_json:
        print(constants.model_dump_json(indent=1))
        return
    # The common factor, what the lines determine and move, what stays, and each line's errors.
    lines = f"{constants.number_of_lines} lines of {constants.measured}"
    print(f"{constants.accelerator}, {constants.software}: {lines}, noise {constants.noise:.1%}")
    if constants.common is not None:
        low, high = constants.common.interval
        factor = f"COMMON FACTOR {constants.common.value:.4g} (with 90 %: {low:.4g} to {high:.4g})"
        print(f"{factor}: of these steps over the catalogue's, on average")
    print(f"{'DETERMINED':52}{'value':>11}{'90 % interval':>24}{'catalogue':>12}")
    alone = {path: value for path, value in constants.values.items() if not value.shared_with}
    for path, value in alone.items():
        low, high = value.interval
        print(f"  {path:50}{value.value:>11.4g}{f'{low:.4g} to {high:.4g}':>24}{value.catalogue:>12.4g}")
    if not alone:
        print("  none alone, only all together: give more lines, with other layouts and micro-batches")
    print(f"{'MOVED WITH OTHERS':52}{'value':>11}{'catalogue':>12}")
    for path, value in constants.values.items():
        if path not in alone:
            print(f"  {path:50}{value.value:>11.4g}{value.catalogue:>12.4g}  {value.shared_with}")
    print(f"{'AS IN THE CATALOGUE':52}{'value':>11}")
    for path, kept in constants.kept.items():
        print(f"  {path:50}{kept.value:>11.4g}  {kept.reason}")
    print(f"{'LINE':>6}{'measured':>14}{'predicted':>14}{'error':>9}{'without the line':>18}{'by the catalogue':>18}")
    for line in constants.lines:
        before = line.catalogue_seconds / line.measured_seconds - 1
        seconds = f"{line.measured_seconds:>12.4g} s{line.predicted_seconds:>12.4g} s"
        left_out = "" if line.left_out_error is None else f"{line.left_out_error:+.1%}"
        print(f"{line.line:>6}{seconds}{line.error:>+9.1%}{left_out:>18}{before:>+18.1%}")
    if known := [abs(line.left_out_error) for line in constants.lines if line.left_out_error is not None]:
        away = [abs(line.catalogue_seconds / line.measured_seconds - 1) for line in constants.lines]
        mean, by_catalogue = sum(known) / len(known), sum(away) / len(away)
        print(f"a line left out is predicted with {mean:.1%} on average, by the catalogue {by_catalogue:.1%}")


import_app = Typer(help="Read models from other tools' files.", rich_markup_mode=None, no_args_is_help=True)


@import_app.command()
def hf(
    config: Annotated[
        Path, Argument(help="A model's config.json from the Hugging Face Hub, or the folder that has it.")
    ],
    output: console.InsteadOfStdout = None,
    name: Annotated[str | None, "Name of the model; its folder's or file's unless given."] = None,
) -> None:
    """Print the model of a Hugging Face config.json as `workload.model` of an instance has it."""
    from planner.imports.huggingface import read_model
    from planner.physics.training.transformer import active_parameters, total_parameters

    model = read_model(config) if name is None else read_model(config).replaced(name=name)
    console.print_or_write(json.dumps(model.model_dump(mode="json", exclude_defaults=True), indent=1) + "\n", output)
    total, active = total_parameters(model), active_parameters(model)
    some = f", {active / 1e9:,.4g}B of them for a token" if model.experts else ""
    print(f"{model.name}: {total / 1e9:,.4g}B weights{some}", file=sys.stdout if output else sys.stderr)


export_app = Typer(help="Write plans for other tools.", rich_markup_mode=None, no_args_is_help=True)
FRAMEWORKS = ("megatron", "torchtitan", "nemo", "deepspeed")


@export_app.command()
def launch(
    plan: console.PlanFile,
    framework: Annotated[str | None, f"One of {', '.join(FRAMEWORKS)}; megatron unless given."] = None,
    output: console.InsteadOfStdout = None,
    exact: Annotated[bool, "Refuse what the framework does not run; else the nearest that it runs."] = False,
    like: Annotated[Path | None, "Your recipe or Slurm script: written back with the plan in it, rest kept."] = None,
    placement: Annotated[Path | None, "Hosts for the script of --like, from `planner place --format json`."] = None,
) -> None:
    """Print a training framework's flags for a plan's layout (-o: to a file): degrees, pipeline, batch, environment."""
    from planner.exports.launch import FORMS, STACKS, UNSAID, launch_file, run_of, unsaid
    from planner.exports.runnable_layout import own_step, runnable_layout
    from planner.formats.cluster_files import placement_of
    from planner.imports.megatron_flags import REMEDY
    from planner.imports.recipes import form_of, run_of_text, written_like

    framework = next((name for name, stack in STACKS.items() if stack == framework), framework)  # as plans name them
    text = "" if like is None else read_text(like, REMEDY)
    file = None if like is None else run_of_text(text, like)
    own = None if file is None else file.framework
    if placement is not None and like is None:
        raise InputError(f"--placement {placement}: names the hosts for a script; give it by --like FILE")
    if own is not None and framework not in (None, own):
        raise InputError(f"--for {framework}: {like} is of {own}; leave out --for, or give another file")
    framework = own or framework or "megatron"
    console.require_choice("--for", framework, FRAMEWORKS)
    form = FORMS[framework] if like is None else form_of(like)
    kept = output is not None and output.parent != Path("/dev") and (output.is_file() or not output.exists())
    if output is not None and kept and form_of(output) != form:
        due = {"sh": ".sh, or any but .toml, .json, .yaml and .yml", "yaml": ".yaml or .yml"}.get(form, f".{form}")
        raise InputError(f"{output}: must end in {due}, by which it is read back; rename it")
    with console.showable_plan(plan) as given:
        run = run_of(given, str(plan))
        near = None if exact else runnable_layout(given, run, framework)
        run, reported, differs = run if near is None else near.run, list[str](), list[str]()
        for key, pair in (near.changes if near is not None else {}).items():
            planned, runs = (", ".join(map(str, one)) or "none" if isinstance(one, tuple) else one for one in pair)
            differs.append(f"layout.{key}: {framework} runs {runs} in place of {planned}")
        if near is not None:
            by = f", both of {run.software.name}{' on a free network' * (given.instance.network is not None)}"
            differs.append(f"predicted step: {near.step_seconds:.4g} s, {near.longer:+.2%} on the plan's layout{by}")
        if run.nodes > -(-run.gpus // run.host_gpus):
            differs.append(
                f"{run.nodes:,} hosts of {run.node_gpus} ranks: {run.gpus:,} GPUs do not fill hosts of {run.host_gpus}"
            )
        if like is None:
            text = launch_file(run, framework, differs)
        else:
            placed = None if placement is None else placement_of(read_json(placement), placement)
            text, reported = written_like(text, like, run, given.instance, placed)
        own_lines = own_step(given, run, file.switches, str(like)) if file is not None and file.switches else []
    if given.layout is not None and not given.layout.metrics.fits_memory:
        print(f"{plan}: its layout does not fit in memory; `planner show {plan} limits`", file=sys.stderr)
    print(*reported, sep="\n", end="\n" if reported else "", file=sys.stderr)
    if form == "json" and (counted := unsaid(run, framework)):  # which has no comments
        differs.append(f"{UNSAID}: {'; '.join(counted)}")
    print(*differs, sep="\n", end="\n" if differs else "", file=sys.stderr)
    parts = f"`planner evaluate {plan} --from-flags {output or 'FILE'}` has that step in parts"
    for line in own_lines and [*own_lines, parts]:
        print(f"{like}: {line}", file=sys.stderr)
    console.tell_not_modelled(given.instance)
    console.print_or_write(text, output)


grid_app = Typer(help="Read grids from other tools' files.", no_args_is_help=True)


@grid_app.command("import")
def import_(
    files: Annotated[
        list[Path], Argument(help="Files of one grid: a .m case, or CSV tables recognised by their columns.")
    ],
    output: Annotated[Path | None, "Write the grid here (JSON); else it is printed."] = None,
    form: Annotated[str, "auto, matpower, rts-gmlc, eia-860 or reeds."] = "auto",
    into: Annotated[Path | None, "Write this instance with the grid in it, its rules and site prices kept."] = None,
    name: Annotated[str | None, "Name of the instance that --into writes."] = None,
    geojson: Annotated[Path | None, "Write nodes and lines here as GeoJSON."] = None,
    *,
    options: GridOptions,
) -> None:
    """Print an instance's grid made from files of MATPOWER, RTS-GMLC, EIA-860 or ReEDS, and what they leave open."""
    from planner.imports import grid_drafts
    from planner.imports.read_grid import import_grid
    from planner.instance.grid import Grid
    from planner.planning.load import load_instance

    if name is not None and into is None:
        raise InputError(f"--name {name}: names the instance that --into writes; give --into INSTANCE")
    imported = import_grid(files, form, options)
    grid = imported.grid
    data = {"grid": grid_drafts.part(grid)} if into is None else grid_drafts.instance_with(into, grid, name)
    if into is not None:
        try:
            load_instance(data)
        except InputError as error:
            raise InputError(f"{into}: does not go with the imported grid: {error}") from None
    if geojson is not None:
        write_atomically(geojson, json.dumps(grid_drafts.geojson(grid), ensure_ascii=False) + "\n")
    console.print_or_write(grid_drafts.text(data), output)
    # Say what the grid that was written holds, and what its files leave open.
    written, stream = Grid.model_validate(data["grid"]), sys.stderr if output is None else sys.stdout
    lines = f"{len(written.lines):,} lines of {sum(line.circuits for line in written.lines):,} circuits"
    print(f"{len(written.balancing_authorities):,} authorities, {len(written.nodes):,} nodes, {lines};", file=stream)
    spare = sum(node.generation_mw for node in written.nodes)
    load = sum(node.load_mw for node in written.nodes)
    headroom = sum(area.headroom_mw for area in written.balancing_authorities)
    print(f"{spare:,.0f} MW of generation, {load:,.0f} MW of load, {headroom:,.0f} MW of headroom", file=stream)
    notes = [f"missing: {figure}" for figure in imported.missing]
    notes += [f"not modelled: {item}" for item in imported.not_modelled]
    notes += [f"not read: {', '.join(imported.not_read)}"] if imported.not_read else []
    notes += [f"no site can stand: the grid does not feed its own load; {why}" for why in grid_drafts.shortage(written)]
    for note in notes:
        print(note, file=sys.stderr)
