"""Plant single-token bugs in the code and count how many the tests of its own area find.

Run `.venv/bin/python scripts/verify/mutate.py [AREA ...] [--mutants N] [--seed N] [--processes N]` after
`.venv/bin/pip install -e '.[mutation]'`. An area is some folders of planner/ with the tests of their own names.
Cosmic Ray changes an operator, a comparison or a number of a copy of the checkout, and pytest runs those tests of the
area that run the changed statement until one fails: the quick ones, then the rest of their files, which may hold what
these made, then the slow ones. A survivor is printed with its change; those of `survivors.txt` beside this file change
nothing that a plan says, each for the reason given there. Exits with 1 where less than 90 % of the rest are found.
"""

import argparse
import ast
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from covering import Covering, covering, named, pytest_in

ROOT = Path(__file__).parents[2]
COPIED = ("planner", "tests", "instances", "scripts", "docs", "pyproject.toml", "README.md", "CHANGELOG.md")
# Tests of a whole plan's checks, which are those of every area that has some.
CHECKS = (
    *(f"checks/test_{x}.py" for x in ("check", "check_proofs")),
    "planning/test_stored_plans.py",
)


def _checks(*names: str) -> tuple[str, ...]:
    return tuple(f"checks/{name}.py" for name in names)


# Folders and files of planner/, and those of tests/ whose tests are theirs.
AREAS = {
    "sites": (
        ("physics/site", "models/sites", "models/wan_design.py", *_checks("sites", "power_flow", "cost")),
        (
            "physics/site", "models/sites", "models/test_wan_design.py", "checks/site",
            "models/joint/test_joint_sites.py", *CHECKS,
        ),
    ),
    "network": (
        ("physics/network", "models/fabric", *_checks("fabric", "cables", "placement")),
        (
            "physics/network", "models/fabric", "checks/network",
            "scheduling/test_session.py", *CHECKS,
        ),
    ),
    "training": (
        ("physics/training", *_checks("layout")),
        ("physics/training", "checks/training", "checks/joint", "models/joint/test_framework_rules.py", *CHECKS),
    ),
    "joint": (
        ("models/joint", *_checks("strategy_space_check", "joint_proof", "strategy_times_check")),
        ("models/joint", "checks/joint", *CHECKS),
    ),
    "reliability": (
        ("physics/recovery.py", *_checks("reliability")),
        (
            *(f"physics/test_{x}.py" for x in ("best_interval", "plan_curves")),
            "checks/reliability", "planning/test_evaluate.py", *CHECKS,
        ),
    ),
    "placement": (
        ("models/placement",),
        ("models/placement", "checks/network/test_check_placement.py"),
    ),
    "solvers": (("solvers",), ("solvers", "planning/test_planted_decisions.py", "planning/test_limits.py")),
    "planning": (("planning", "api"), ("planning", "checks/test_check.py")),
    "scheduling": (("scheduling", "cluster.py"), ("scheduling", "cluster", "cli/test_place.py", "cli/test_watch.py")),
    "simulation": (("simulation",), ("simulation", "checks/network/test_check_families.py")),
    "formats": (
        ("formats", "imports"),
        (
            "formats", "imports", "exports/launch/test_launch.py", "exports/launch/test_like.py",
            "planning/test_cheapest_fabric.py",
            *(f"cli/test_{x}.py" for x in ("first_steps", "inputs", "jobs_that_run", "place")),
        ),
    ),
    "sweeps": (("sweeps",), ("sweeps",)),
    "exports": (("exports",), ("exports", "checks/network/test_check_families.py")),
    "instance": (
        ("instance", "plan"),
        (
            "catalogue", "planning/test_load.py", "cli/test_first_steps.py",
            "repository/test_package.py::test_schemas_are_current", *CHECKS,
        ),
    ),
    "report": (
        ("report", "calibration"),
        ("report", "calibration", "cli/test_outputs.py", *(f"planning/test_{x}.py" for x in ("evaluate", "explain"))),
    ),
}  # fmt: skip
QUICK, SLOW = MARKS = ("not slow", "slow")
SWAPS = {"Add": ("Sub",), "Sub": ("Add",), "Mul": ("Div",), "Div": ("Mul",), "FloorDiv": ("Div",), "Mod": ("Mul",)}
COMPARISONS = {"Eq": ("NotEq",), "NotEq": ("Eq",), "Lt": ("LtE", "Gt"), "LtE": ("Lt", "Gt"), "Gt": ("GtE", "Lt"),
               "GtE": ("Gt", "Lt"), "Is": ("IsNot",), "IsNot": ("Is",)}  # fmt: skip
OTHERS = (
    "AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "NumberReplacer", "ZeroIterationForLoop",
    "ReplaceUnaryOperator_Delete_USub", "ReplaceUnaryOperator_Delete_Not",
)  # fmt: skip
GOAL = 0.9
SPARE_SECONDS = 60.0  # beyond all tests of the area under measurement: a bug that makes some of them hang is found


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file: an operator at one of the places where it can be."""

    area: str
    file: Path
    operator: str
    occurrence: int


@dataclass(frozen=True, slots=True)
class Result:
    """Whether the tests found a mutant, and the lines that it changed."""

    mutant: Mutant
    found: bool
    before: str
    after: str


def operators() -> list[str]:
    """Return the names of the operators that stand for a slip of the pen."""
    binary = [f"ReplaceBinaryOperator_{a}_{b}" for a, all_b in SWAPS.items() for b in all_b]
    compared = [f"ReplaceComparisonOperator_{a}_{b}" for a, all_b in COMPARISONS.items() for b in all_b]
    return [f"core/{name}" for name in (*binary, *compared, *OTHERS)]


def mutants(area: str) -> Iterator[Mutant]:
    """Yield every mutant of an area."""
    places = [ROOT / "planner" / place for place in AREAS[area][0]]
    for file in sorted(f for place in places for f in ([place] if place.suffix else place.rglob("*.py"))):
        nodes = list(ast_nodes(get_ast(file.read_text(encoding="utf-8"))))
        for name in operators():
            operator = get_operator(name)()
            count = sum(len(list(operator.mutation_positions(node))) for node in nodes)
            yield from (Mutant(area, file.relative_to(ROOT), name, i) for i in range(count))


def changed(m: Mutant) -> tuple[str, int, str, str] | None:
    """Return the mutated source, and the line with its number before and after; None where it is the same program.

    None too where it is no program at all, as with `not` before an assignment in a condition: nobody would commit it.
    """
    source = (ROOT / m.file).read_text(encoding="utf-8")
    mutated = mutate_code(source, get_operator(m.operator)(), m.occurrence)
    try:
        if mutated is None or meaning(mutated) == meaning(source):
            return None
    except SyntaxError:
        return None
    pairs = enumerate(zip(source.splitlines(), mutated.splitlines(), strict=False), 1)
    line, before, after = next((i, a.strip(), b.strip()) for i, (a, b) in pairs if a != b)
    return mutated, line, before, after


def meaning(source: str) -> str:
    """Return the program, apart from what it forbids its own callers.

    That is which arguments must be named, what annotations say, which fields of a dataclass may be set, and whether
    `zip` refuses unequal lengths.
    """
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.decorator_list = [x for x in node.decorator_list if not ast.unparse(x).startswith("dataclass(")]
        if isinstance(node, ast.arguments):
            node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
            node.defaults = [*node.defaults, *(x for x in node.kw_defaults if x is not None)]
            node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Name("Any")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "zip":
            node.keywords = [k for k in node.keywords if k.arg != "strict"]
    return ast.dump(tree)


def passed(copy: Path, marked: str, chosen: list[str], seconds: float) -> bool:
    """Return whether the marked ones of tests pass in a copy within so many seconds; none is a pass."""
    return not chosen or not pytest_in(copy, "-m", marked, named(copy, chosen), seconds=seconds)


def judged(m: Mutant, runs: dict[str, Covering], copies: "Queue[Path]", limits: dict[str, float]) -> Result | None:
    """Judge a mutant in a copy that is free; None where it is no change."""
    change = changed(m)
    if change is None:
        return None
    source, line, before, after = change
    quick, slow = (runs[mark].of(m.file, line) for mark in MARKS)
    stages = ((QUICK, quick), (QUICK, sorted({t.split("::")[0] for t in quick})), (SLOW, slow))
    copy = copies.get()
    try:
        (copy / m.file).write_text(source, encoding="utf-8")
        survived = all(passed(copy, mark, chosen, limits[mark]) for mark, chosen in stages)
        return Result(m, not survived, f"{line}: {before}", after)
    finally:
        shutil.copy(ROOT / m.file, copy / m.file)
        copies.put(copy)


def copied(place: Path) -> Path:
    """Copy what the tests need of the checkout."""
    place.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, place / name)
    return place


def reasons() -> dict[tuple[str, str], str]:
    """Return the survivors that change nothing, by file and changed line."""
    found, path = {}, Path(__file__).with_name("survivors.txt")
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if line and not line.startswith("#"):
            file, after, reason = (part.strip() for part in line.split(" :: "))
            found[file, after] = reason
    return found


def judge_area(area: str, count: int, seed: int, copies: "Queue[Path]", processes: int) -> tuple[int, int]:
    """Judge a sample of an area's mutants, print the survivors and return how many were found of how many."""
    every = list(mutants(area))
    sample = random.Random(f"{area}:{seed}").sample(every, min(count, len(every)))
    copy, runs, limits = copies.get(), dict[str, Covering](), dict[str, float]()
    for mark in MARKS:
        started = time.perf_counter()
        run = covering(copy, ROOT, mark, [f"tests/{place}" for place in AREAS[area][1]])
        if run is None:
            raise SystemExit(f"{area}: the tests fail without any change")
        runs[mark], limits[mark] = run, SPARE_SECONDS + time.perf_counter() - started
    copies.put(copy)
    known, found, judged_count = reasons(), 0, 0
    with ThreadPoolExecutor(processes) as pool:
        for number, r in enumerate(pool.map(lambda m: judged(m, runs, copies, limits), sample), 1):
            if r is None or (str(r.mutant.file), r.after) in known:
                continue
            judged_count, found = judged_count + 1, found + r.found
            if not r.found:
                so_far = f"{number} of {len(sample)}: {found} of {judged_count} found"
                print(f"  {so_far}; {r.mutant.file}:{r.before}\n    -> {r.after}", flush=True)
    share = found / max(1, judged_count)
    print(f"{area}: {found} of {judged_count} found ({share:.0%}), of {len(every)} possible", flush=True)
    return found, judged_count


def main() -> None:
    """Judge the areas asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("areas", nargs="*", default=list(AREAS))
    parser.add_argument("--mutants", type=int, default=40, help="of each area")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    copies: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory() as place:
        for i in range(asked.processes):
            copies.put(copied(Path(place) / str(i)))
        totals = [judge_area(a, asked.mutants, asked.seed, copies, asked.processes) for a in asked.areas]
    found, count = (sum(t[i] for t in totals) for i in (0, 1))
    print(f"{found} of {count} found ({found / max(1, count):.1%})")
    raise SystemExit(found < GOAL * count)


if __name__ == "__main__":
    main()
