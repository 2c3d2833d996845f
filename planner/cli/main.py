"""The command line: parse, call, print. Everything heavy is imported by the command that needs it."""

import gc
import io
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from typer import BadParameter, Exit, Option, Typer
from typer.core import TyperGroup

from planner.argument_ranges import RANGES
from planner.cli import cluster_commands, fabric_commands, file_commands, plan_commands, sweep_commands
from planner.cli.console import ExitCode, watched
from planner.errors import InputError, PlannerError
from planner.version import __version__

EXIT_CODES = (  # shown below the options of `planner --help`
    "Exit status: 0 done (proven, or within --gap or --epsilon); 1 a rule is broken (check), cables differ (fabric "
    "check), or an internal error; 2 bad usage or bad input; 3 proven infeasible; 4 not proven, as a limit was reached "
    "or the search leaves a gap, and the best plan so far is written; 5 the checker disagrees with the plan, which is "
    "written with what it says; 130 interrupted, with the best plan so far."
)
UsageError: Any = BadParameter.__base__  # of the command line's library, which does not name it
NUMBER_DUE = re.compile("(int|float)_(parsing|from_float)")  # types of pydantic's errors
SUFFIXES = {"K": 3, "M": 6, "B": 9, "T": 12}  # that a number may not have, and its power of ten
# Objects after which cycles are looked for: by Python's 700 that is a tenth of what a small solve takes.
CYCLES = 100_000, 50, 100


class Commands(TyperGroup):
    """The group of all commands: text where a number is due and a word too many get a remedy; Ctrl-C is reported."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that the command line names."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            causes: list[Any] = getattr(error.__cause__, "errors", list)()  # of pydantic's ValidationError
            if not isinstance(error, BadParameter):
                parameters = error.ctx.command.params if error.ctx is not None else []
                takes_output = any("-o" in parameter.opts for parameter in parameters)
                if takes_output and "unexpected extra argument" in error.message:
                    error.message += "; a file to write is given as -o FILE"
                raise
            if error.param is None or error.ctx is None or not causes or not NUMBER_DUE.match(causes[0]["type"]):
                raise
            name, text = str(error.param.name), str(causes[0]["input"])
            allowed = RANGES.get(f"{error.ctx.command.name}.{name}") or RANGES.get(name)
            whole, power = causes[0]["type"].startswith("int"), SUFFIXES.get(text[-1:].upper(), 0)
            due = allowed.words() if allowed else "a whole number" if whole else "a number"
            in_digits = power and text[:-1].isdecimal()
            remedy = f"write {text[:-1]}{'0' * power if whole else f'e{power}'}" if in_digits else "give it in digits"
            option = next((word for word in error.param.opts if word.startswith("--")), name)
            raise InputError(f"{option}: must be {due} (is {text[:40]!r}); {remedy}") from None
        except KeyboardInterrupt:  # here, as the command line's library ends with the same status and no word
            print("interrupted before there was an answer", file=sys.stderr)
            raise Exit(ExitCode.INTERRUPTED) from None


app = Typer(
    cls=Commands, rich_markup_mode=None, pretty_exceptions_enable=False, no_args_is_help=True, epilog=EXIT_CODES
)
COMMANDS: tuple[Callable[..., None], ...] = (  # in the order in which `planner --help` lists them
    *(plan_commands.solve, plan_commands.frontier, plan_commands.layouts, plan_commands.evaluate),
    *(plan_commands.explain, plan_commands.check, plan_commands.show, plan_commands.schema),
    *(cluster_commands.place, fabric_commands.simulate, sweep_commands.limits, sweep_commands.plot),
    *(plan_commands.report, plan_commands.compare, plan_commands.serve, sweep_commands.sweep),
    *(cluster_commands.topology, cluster_commands.defragment, cluster_commands.preempt, cluster_commands.resize),
    *(cluster_commands.queue, file_commands.calibrate, file_commands.init, file_commands.catalogue),
)
for command in COMMANDS:
    app.command()(watched(command))
for name, group in (
    ("import", file_commands.import_app),
    ("export", file_commands.export_app),
    ("grid", file_commands.grid_app),
    ("fabric", fabric_commands.app),
):
    group.callback()(lambda: None)  # or its one command would have no name
    for registered in group.registered_commands:
        if registered.callback is not None:
            registered.callback = watched(registered.callback)
    app.add_typer(group, name=name)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"planner {__version__}")
        raise Exit(ExitCode.DONE)


@app.callback()
def planner(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Plan the datacenters that train the largest AI models: sites, layout, fabric, placement, each with a proof."""


def main() -> None:
    """Run the command line; a user's mistake ends in a message, never in a traceback."""
    gc.set_threshold(*CYCLES)
    for name in ("stdout", "stderr"):  # in UTF-8, as files are, whatever the locale; a closed one is discarded
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    try:
        try:
            app()
        except SystemExit as end:
            # The command line's library ends with 1 where a reader of stdout, such as head, has left early.
            if isinstance(end.__context__, BrokenPipeError):
                raise end.__context__ from None
            raise
        finally:
            sys.stdout.flush()
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(ExitCode.BAD_INPUT)
    except PlannerError as error:
        print(f"internal error: {error}; please report it with the instance", file=sys.stderr)
        sys.exit(ExitCode.BROKEN)
    except MemoryError:
        print("the memory is not enough; allow the process more, or ask about a smaller instance", file=sys.stderr)
        sys.exit(ExitCode.BAD_INPUT)
    except OSError as error:
        # Discard the rest of stdout's buffer: to flush it as the process ends would fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if isinstance(error, BrokenPipeError):
            sys.exit(ExitCode.DONE)
        if error.filename is None:
            complaint = f"stdout: cannot be written ({error.strerror}); write elsewhere, such as with -o"
        else:
            complaint = f"{os.fsdecode(error.filename)}: cannot be used ({error.strerror}); name another file"
        print(complaint, file=sys.stderr)
        sys.exit(ExitCode.BAD_INPUT)
