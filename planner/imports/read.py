"""Read a grid from files of any format, recognised by their columns."""

from collections.abc import Callable, Sequence
from pathlib import Path

from planner.errors import InputError
from planner.imports.assemble import Imported, assemble
from planner.imports.draft import Draft, Options
from planner.imports.readers import eia_860, matpower, plants, reeds, rts_gmlc
from planner.imports.readers.tables import Table, read_table
from planner.instance.read_items import ReadItems

FORMATS = ("auto", "matpower", "rts-gmlc", "eia-860", "reeds")

# A table's role, and the columns that it is recognised by, each by any of its names; the first that fits is chosen.
ROLES: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    ("gen", (("GEN UID",), ("Bus ID",))),
    ("bus", (("Bus ID",), ("BaseKV", "MW Load"))),
    ("branch", (("From Bus",), ("To Bus",))),
    ("zones", (("zone",), ("interconnect", "planning_group"))),
    ("interfaces", (("from",), ("to",), ("mw_forward", "mw_reverse"))),
    ("generators", (plants.ID, ("Generator ID", "generator_id"))),
    ("plants", (plants.ID, plants.LATITUDE)),
    ("peaks", (("ba", "authority"), ("peak_mw", "peak_mw_clean_2023_24"))),
)
READERS: dict[str, Callable[[dict[str, Table], Options], Draft]] = {
    "rts-gmlc": rts_gmlc.read,
    "reeds": reeds.read,
    "eia-860": eia_860.read,
}
# The table that each format must have, and those that it can use beside it.
NEEDS = {
    "rts-gmlc": ("bus", ("branch", "gen")),
    "reeds": ("zones", ("interfaces", "plants", "generators", "peaks")),
    "eia-860": ("plants", ("generators", "peaks")),
}


def import_grid(files: Sequence[Path], kind: str, options: Options) -> Imported:
    """Read files of one format into a grid."""
    if kind not in FORMATS:
        raise InputError(f"--format {kind}: must be one of {', '.join(FORMATS)}")
    cases = [f for f in files if f.suffix == ".m" or kind == "matpower"]
    if cases and (len(files) > 1 or kind not in ("auto", "matpower")):
        others = f"(with {len(files) - 1} other files, --format {kind})"
        raise InputError(f"{cases[0]}: a MATPOWER case stands alone {others}; import it by itself")
    if cases:
        return assemble(matpower.read(cases[0], options), options)
    draft, tables = _from_tables(files, kind, options)
    columns = sorted((f"{Path(t.file).name}: {c}", c in t.looked_up) for t in tables.values() for c in t.columns)
    items = ReadItems(
        taken=tuple(c for c, used in columns if used), ignored=tuple(c for c, used in columns if not used)
    )
    return assemble(draft, options, items)


def _from_tables(files: Sequence[Path], kind: str, options: Options) -> tuple[Draft, dict[str, Table]]:
    tables: dict[str, Table] = {}
    for f in files:
        table = read_table(f)
        role = _role(table)
        if role in tables:
            raise InputError(f"{f}: is a second table of {role}, beside {tables[role].file}; give one")
        tables[role] = table
    if kind == "auto":
        kind = next((k for k, (required, _) in NEEDS.items() if required in tables), "")
    given = f"a table of {next(iter(tables))}"
    if not kind:
        raise InputError(f"{files[0]}: {given} alone makes no grid; give the table of bus, zones or plants with it")
    required, optional = NEEDS[kind]
    if required not in tables:
        raise InputError(f"{files[0]}: --format {kind} needs a table of {required} (is {given}); give it")
    for role, table in tables.items():
        if role not in (required, *optional):
            raise InputError(f"{table.file}: is a table of {role}, which {kind} does not use; leave it out")
    return READERS[kind](tables, options), tables


def _role(table: Table) -> str:
    for role, columns in ROLES:
        if all(table.find(*names) for names in columns):
            return role
    problem = f"its columns are of no known format (has {', '.join(table.columns[:12])})"
    raise InputError(f"{table.file}: {problem}; see `planner grid import --help`")
