"""Tables of a grid's files, and the draft read from them: completed, written, and checked to feed its load."""

import difflib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from planner.errors import InputError, hint
from planner.files import csv_rows, read_text
from planner.imports.command_options import GridOptions
from planner.imports.instance_file import read_instance_file
from planner.imports.unmodelled_items import TrackedItems
from planner.instance.base_types import NOT_MODELLED
from planner.instance.grid import BalancingAuthority, Grid, Line, PowerNode
from planner.physics.site.grid import normal_share
from planner.units import few

COLUMNS = ("interconnection", "headroom_mw", "energy_usd_per_mwh", "source")  # of a user's table of authorities
DEAR = 1e3  # a MW that plants lack, over a MW by which lines are too narrow: lines are blamed where they alone will do


class DraftBranch(NamedTuple):
    """One circuit between two nodes in the draft of a grid; a rating of None is no limit."""

    a: str
    b: str
    rating_mw: float | None
    reactance_pu: float | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A grid as far as its file states it; `notes` name parts that were left out or read in a special way.

    The nodes have all that is installed as their generation, unrounded; 0 where the file says nothing of plants.
    Balancing authorities come with their interconnection, None where it is not known, and some with their peak demand.
    """

    source: str
    nodes: tuple[PowerNode, ...]
    plants_known: bool = True
    branches: tuple[DraftBranch, ...] = ()
    interconnections: dict[str, str | None]
    peaks_mw: dict[str, float]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row of a grid's table, with its last line; `matrix` names a table of a MATPOWER case, which has no header."""

    file: str
    line: int
    cells: Mapping[str, str]
    matrix: str = ""

    def text(self, column: str) -> str:
        """Return a cell of a grid's table that must not be empty."""
        if not self.cells[column]:
            raise self.wrong(column, "must not be empty", "fill it in, or remove the row")
        return self.cells[column]

    def number(self, column: str, *, low: float = -math.inf, high: float = math.inf, remedy: str = "") -> float:
        """Return a cell of a grid's table that must be a finite number within bounds."""
        bounds = f" of at least {low:g}" if math.isfinite(low) else ""
        if math.isfinite(high):
            bounds = f" from {low:g} to {high:g}"
        try:
            value = float(self.cells[column])
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not low <= value <= high:
            raise self.wrong(column, f"must be a finite number{bounds}", remedy or "correct it, or remove the row")
        return value

    def place(self, latitude: str, longitude: str) -> tuple[float, float]:
        """Return the latitude and longitude in two cells of a grid's table, in degrees."""
        return self.number(latitude, low=-90, high=90), self.number(longitude, low=-180, high=180)

    def wrong(self, column: str, problem: str, remedy: str) -> InputError:
        """Return the error that names a cell of a grid's table, its file and line."""
        where, is_ = f"column {column!r}", repr(self.cells[column])
        if self.matrix:
            where, is_ = f"{self.matrix} column {[*self.cells].index(column) + 1} ({column})", self.cells[column]
        return InputError(f"{self.file}: line {self.line}, {where}: {problem} (is {is_}); {remedy}")


def by_name(rows: Iterable[CsvRow], column: str, what: str, remedy: str = "keep one row") -> dict[str, CsvRow]:
    """Return a table's rows by their cell in a column, the name of a plant, bus or the like; refuse repeated names."""
    named: dict[str, CsvRow] = {}
    for row in rows:
        if (first := named.setdefault(row.text(column), row)) is not row:
            raise row.wrong(column, f"is already the {what} of line {first.line}", remedy)
    return named


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A CSV table of a grid: its columns by name, and its rows."""

    file: str
    columns: tuple[str, ...]
    rows: tuple[CsvRow, ...]
    looked_up: set[str] = field(default_factory=set, compare=False)  # columns whose cells were read

    def find(self, *names: str) -> str | None:
        """Return the first of several names that a column of a grid's table has."""
        return next((name for name in names if name in self.columns), None)

    def need(self, *names: str) -> str:
        """Return the first of several names that a column of a grid's table has, or refuse the table."""
        if (column := self.find(*names)) is None:
            near = difflib.get_close_matches(names[0], self.columns, 1, 0.6)
            hint = f"is it {near[0]!r}? rename it" if near else f"add it (has {', '.join(self.columns[:12])})"
            raise InputError(f"{self.file}: column {' or '.join(map(repr, names))} is missing; {hint}")
        return column

    def need_all(self, *names: str) -> None:
        """Refuse a grid's table where one of its columns is missing."""
        for name in names:
            self.need(name)


def read_table(path: Path) -> CsvTable:
    """Read a grid's CSV table; its header is the first row with two filled cells, after any title."""
    rows, looked_up = csv_rows(path, read_text(path), titled=True), set[str]()
    line, first = next(rows, (1, []))
    header = [cell.strip() for cell in first]
    if not header:
        raise InputError(f"{path}: has no header of two columns or more; give a CSV file with a comma between columns")
    if twice := sorted({name for name in header if name and header.count(name) > 1}):
        raise InputError(f"{path}: line {line}: column {twice[0]!r} is given twice in the header; rename or remove one")
    named = ((line, {key: cell.strip() for key, cell in zip(header, row, strict=True) if key}) for line, row in rows)
    made = tuple(CsvRow(str(path), line, TrackedItems(cells, looked_up)) for line, cells in named)
    return CsvTable(str(path), tuple(filter(None, header)), made, looked_up)


def _fill(draft: Draft, options: GridOptions) -> tuple[tuple[BalancingAuthority, ...], tuple[str, ...]]:
    """Return a grid's authorities (user's table, then options, then files), and a sentence for each figure missing."""
    given, known = dict[str, dict[str, str]](), sorted(draft.interconnections)
    if (path := options.authorities) is not None:
        table = read_table(path)
        key = table.need("authority", "id")
        if table.find(*COLUMNS[:3]) is None:
            raise InputError(f"{path}: gives none of {', '.join(COLUMNS[:3])}; add one of these columns")
        for name, cells in by_name(table.rows, key, "authority").items():
            if name not in known:
                raise cells.wrong(key, "is no authority of this grid", hint(name, known))
            given[name] = {column: cells.cells[column] for column in COLUMNS if cells.cells.get(column)}
            for column in filter(given[name].get, COLUMNS[1:3]):
                cells.number(column, low=0)
    installed: defaultdict[str, float] = defaultdict(float)
    for node in draft.nodes:
        installed[node.balancing_authority] += node.generation_mw
    authorities, without = [], defaultdict(list)
    for authority in known:
        row = given.get(authority, {})
        share, peak_mw, installed_mw = options.headroom_share, draft.peaks_mw.get(authority), installed[authority]
        headroom, reading = None, "missing"
        if "headroom_mw" in row:
            headroom, reading = float(row["headroom_mw"]), "given"
        elif share is not None and peak_mw is not None:
            headroom, reading = share * peak_mw, f"{share:.3g} of a peak demand of {peak_mw:,.0f} MW"
        elif share is not None and installed_mw > 0:
            headroom, reading = share * installed_mw, f"{share:.3g} of {installed_mw:,.0f} MW installed"
        elif peak_mw is not None:
            headroom = max(0.0, installed_mw - peak_mw)
            reading = f"{installed_mw:,.0f} MW installed less a demand of {peak_mw:,.0f} MW"
        price = float(row["energy_usd_per_mwh"]) if "energy_usd_per_mwh" in row else options.energy_usd_per_mwh
        area = row.get("interconnection") or draft.interconnections[authority] or options.interconnection
        for key, value in (("headroom_mw", headroom), ("energy_usd_per_mwh", price), ("interconnection", area)):
            if value is None:
                without[key].append(authority)
        filled = BalancingAuthority(
            id=authority,
            interconnection=area or "unnamed",
            headroom_mw=round(headroom or 0.0, 3),
            energy_usd_per_mwh=price or 0.0,
            source=row.get("source"),
            note=f"headroom_mw: {reading}",
        )
        authorities.append(filled)
    missing = []
    for key, ids in without.items():
        written = "'unnamed'" if key == "interconnection" else "0"
        option = "--headroom-share" if key == "headroom_mw" else f"--{key.replace('_', '-')}"
        missing.append(f"{key} of {few(ids, 6)}: written as {written}; give {option} or --authorities")
    return tuple(authorities), tuple(missing)


class Imported(NamedTuple):
    """An imported grid, and what its files miss, have in a way that is not modelled, or have in columns not read."""

    grid: Grid
    missing: tuple[str, ...]
    not_modelled: tuple[str, ...]
    not_read: Sequence[str]


def assemble(draft: Draft, options: GridOptions, not_read: Sequence[str] = ()) -> Imported:
    """Return the grid of a draft; its note names everything that is filled in and not from the files."""
    installed_mw = sum(node.generation_mw + max(0.0, -node.load_mw) for node in draft.nodes)
    known, wanted = sorted(draft.interconnections), options.only or ()
    for name in wanted:
        if name not in known:
            raise InputError(f"--only {name}: no such balancing authority; {hint(name, known)}")
    if wanted:
        own_nodes = tuple(node for node in draft.nodes if node.balancing_authority in wanted)
        kept = {node.id for node in own_nodes}
        draft = replace(
            draft,
            nodes=own_nodes,
            branches=tuple(branch for branch in draft.branches if {branch.a, branch.b} <= kept),
            interconnections={name: draft.interconnections[name] for name in wanted},
            notes=(*draft.notes, f"of all authorities only {', '.join(sorted(wanted))}"),
        )
    # Where options limit the candidates for sites, they are the nodes with most generation.
    ranked = sorted(draft.nodes, key=lambda node: (-node.generation_mw, node.id))
    candidates = {node.id for node in ranked[: options.sites]}
    nodes = []
    for node in draft.nodes:
        generation_mw = round(node.generation_mw * options.spare_share, 3)
        load_mw = round(node.load_mw, 3) if options.spare_share == 1 else 0.0
        nodes.append(node.replaced(generation_mw=generation_mw, load_mw=load_mw, site=node.id in candidates))
    lines = _lines(draft, installed_mw)
    authorities, missing = _fill(draft, options)
    if not draft.plants_known:
        missing += (f"generation_mw of {len(nodes):,} nodes: written as 0; give a plant list with the files",)
    if not lines:
        missing += ("lines: none; under the transport model each site is fed by its own node alone",)
    left_out = tuple(note for note in draft.notes if "left out" in note or "without" in note)
    notes = [f"{NOT_MODELLED}{note}" if note in left_out else note for note in draft.notes]
    spare = f"{options.spare_share:.0%} of the " if options.spare_share < 1 else ""
    notes.append(f"generation_mw is {spare}installed capacity")
    if draft.branches:
        notes.append("rating_mw is the whole of each circuit")
    all_load_mw = sum(node.load_mw for node in draft.nodes)
    if all_load_mw and options.spare_share == 1:
        notes.append(f"flows count the load in the file, {all_load_mw:,.0f} MW")
    elif draft.branches:
        left = f": {all_load_mw:,.0f} MW is left out, since plants spare what it does not take" if all_load_mw else ""
        notes.append(f"flows are of the sites alone, no other load is counted{left}")
    if unlimited := sum(branch.rating_mw is None for branch in draft.branches):
        written = f"written with {installed_mw:,.0f} MW, all generation there is"
        notes.append(f"branches without a limit in the file, {written}: {unlimited:,}")
    if options.sites is not None and options.sites < len(draft.nodes):
        notes.append(f"sites may stand on the {options.sites:,} nodes with most generation")
    source, note = options.source or draft.source, "; ".join([*notes, *(f"MISSING {figure}" for figure in missing)])
    grid = Grid(source=source, note=note, balancing_authorities=authorities, nodes=tuple(nodes), lines=lines)
    return Imported(grid, missing, left_out, not_read)


def _lines(draft: Draft, unlimited_mw: float) -> tuple[Line, ...]:
    """Merge equal parallel branches of a draft into circuits; one without a limit is rated at all generation."""
    if unlimited_mw <= 0 and any(branch.rating_mw is None for branch in draft.branches):
        problem = "branches without a rating, and no generation that would bound their flow"
        raise InputError(f"{draft.source}: {problem}; give them ratings")
    alike = defaultdict[tuple[str, str, float, float | None, str | None], list[DraftBranch]](list)
    for branch in draft.branches:
        unlimited = "no limit in the file" if branch.rating_mw is None else None
        note = "; ".join(note for note in (branch.note, unlimited) if note) or None
        rating = unlimited_mw if branch.rating_mw is None else branch.rating_mw
        alike[min(branch.a, branch.b), max(branch.a, branch.b), rating, branch.reactance_pu, note].append(branch)
    used, lines = Counter[tuple[str, str]](), []
    for (low, high, rating, reactance, note), branches in alike.items():
        used[low, high] += 1
        start, end = branches[0].a, branches[0].b
        name = f"{start}--{end}" if used[low, high] == 1 else f"{start}--{end}#{used[low, high]}"
        rating_mw = round(rating, 3) or rating  # a kilowatt and less stays as it is
        if not math.isfinite(rating_mw) or math.isinf(reactance or 0.0):
            problem = f"branch {name}: its rating or reactance is beyond all numbers"
            raise InputError(f"{draft.source}: {problem}; correct its figures and their units")
        count = len(branches)
        line = Line(id=name, a=start, b=end, circuits=count, rating_mw=rating_mw, reactance_pu=reactance, note=note)
        lines.append(line)
    return tuple(lines)


def geojson(grid: Grid) -> dict[str, Any]:
    """Return a grid as a GeoJSON FeatureCollection; other figures are properties, `kind`: node, line or new line."""
    where = {node.id: [node.longitude, node.latitude] for node in grid.nodes}
    features = []
    for kind, items in (("node", grid.nodes), ("line", grid.lines), ("new_line", grid.new_lines)):
        for item in items:
            geometry: dict[str, Any] = {"type": "Point", "coordinates": where.get(item.id)}
            if not isinstance(item, PowerNode):
                geometry = {"type": "LineString", "coordinates": [where[item.a], where[item.b]]}
            own = item.model_dump(mode="json", exclude={"latitude", "longitude"}, exclude_none=True)
            made = {"type": "Feature", "id": f"{kind}/{item.id}", "geometry": geometry}
            features.append(made | {"properties": {"kind": kind} | own})
    return {"type": "FeatureCollection", "features": features}


def part(grid: Grid) -> dict[str, Any]:
    """Return a grid, or a part of it, as JSON data, without figures at their defaults."""
    data: dict[str, Any] = grid.model_dump(mode="json", exclude_defaults=True)
    for family in ("balancing_authorities", "nodes", "lines"):
        items = data.get(family, [])
        data[family] = [{key: item[key] for key in sorted(item, key=("source", "note").__contains__)} for item in items]
    return data


def instance_with(path: Path, grid: Grid, name: str | None) -> dict[str, Any]:
    """Return a file's instance with this grid; explicit interconnect becomes lines where nodes have no figure."""
    data = read_instance_file(path)
    old: dict[str, Any] = data["grid"] if isinstance(data.get("grid"), dict) else {}
    new = part(grid) | {key: old[key] for key in ("rules", "prices") if key in old}
    rules = new.get("rules")
    rule = rules.get("interconnect") if isinstance(rules, dict) else None
    if isinstance(rule, dict) and rule.get("enabled", rule.get("on")) and rule.get("reading", "explicit") == "explicit":
        rule["reading"] = "capacity_n1"
        new["note"] += "; the interconnect rule reads lines (capacity_n1), as the nodes have no explicit figure"
    data |= {"name": name or f"{data.get('name', path.stem)} on an imported grid", "grid": new}
    return data


def text(data: Any, depth: int = 0) -> str:
    """Write a grid's JSON with a line for each item of a list and each small object, so that it can be compared."""
    line = json.dumps(data, ensure_ascii=False)
    inner, outer = " " * (depth + 1) * 2, " " * depth * 2
    if isinstance(data, dict) and (depth < 2 or len(line) > 140):
        body = ",\n".join(f"{inner}{json.dumps(key)}: {text(value, depth + 1)}" for key, value in data.items())
        written = f"{{\n{body}\n{outer}}}" if data else "{}"
    elif isinstance(data, list) and data and isinstance(data[0], dict):
        written = "[\n" + ",\n".join(f"{inner}{json.dumps(item, ensure_ascii=False)}" for item in data) + f"\n{outer}]"
    else:
        written = line
    return written if depth else written + "\n"


def shortage(grid: Grid) -> Iterator[str]:
    """Minimise the MW by which an imported grid falls short of its own load; yield a sentence for each rule."""
    import numpy as np
    from scipy import sparse
    from scipy.optimize import linprog

    rules, at = grid.rules, {node.id: i for i, node in enumerate(grid.nodes)}
    if rules.grid_model == "none":
        return
    lines = [line for line in grid.lines if line.a != line.b]
    ends = np.array([(at[line.a], at[line.b]) for line in lines], dtype=int).reshape(-1, 2)
    n, k = len(at), len(lines)
    every, ones = np.arange(k), np.ones(k)
    into: Any = sparse.csr_matrix((np.r_[-ones, ones], (ends.T.ravel(), np.r_[every, every])), shape=(n, k))
    flow: Any = sparse.identity(k)
    if rules.grid_model == "dc":  # the free variables are angles, in units of 10 mrad
        flow = sparse.diags([line.circuits / (line.reactance_pu or np.inf) for line in lines]) @ -into.T
    width, node = flow.shape[1], sparse.identity(n)
    # Columns: generation, flows or angles, width that lines lack, feed that plants lack, feed that finds no load.
    balance = sparse.hstack([node, into @ flow, sparse.csr_matrix((n, k)), node, -node])
    none = sparse.csr_matrix((k, n))
    limits = sparse.vstack([sparse.hstack([none, sign * flow, -sparse.identity(k), none, none]) for sign in (1, -1)])
    capacity = np.array([normal_share(grid) * line.rating_mw * line.circuits for line in lines])
    plants = np.array([node.generation_mw if rules.generation else np.inf for node in grid.nodes])
    high = np.r_[plants, np.full(width + k + 2 * n, np.inf)]
    low = np.r_[np.zeros(n), np.full(width, -np.inf), np.zeros(k + 2 * n)]
    found = linprog(
        np.r_[np.zeros(n + width), ones, np.full(2 * n, DEAR)],
        A_ub=limits.tocsr(),
        b_ub=np.r_[capacity, capacity],
        A_eq=balance.tocsr(),
        b_eq=np.array([node.load_mw for node in grid.nodes]),
        bounds=np.c_[low, high],
        method="highs",
    )
    if found.x is None:
        return
    lacks, feed, spill = np.split(found.x[n + width :], [k, k + n])
    for rule, what, names, lack_mw in (
        ("rating", "lines are too narrow", [line.id for line in lines], lacks),
        ("generation", "plants fall short", list(at), feed),
        ("balance", "must-run feed finds no load", list(at), spill),
    ):
        rows = [(names[i], float(lack_mw[i])) for i in np.flatnonzero(lack_mw > 1e-3)]
        rows.sort(key=lambda pair: (-pair[1], pair[0]))
        if rows:
            named = few([f"{rule}[{name}] {mw:,.6g} MW" for name, mw in rows], 3)
            yield f"{what} by {sum(mw for _, mw in rows):,.6g} MW in all: {named}"
