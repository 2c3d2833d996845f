"""Hostlists: what they look like, and that nothing is lost there and back; the job of a plan, by site."""

from contextlib import suppress

import pytest
from each_case import each
from hypothesis import given
from hypothesis import strategies as st
from stored_plans import stored
from worked_plan import edited_at, small

from planner.cluster.hostlists import MAX_NAMES, MAX_RANGE, expand, fold, fold_names, parse, width
from planner.cluster.job import job_of_plan, read_job
from planner.errors import InputError


@given(st.lists(st.integers(0, 30_000)), st.integers(0, 500), st.integers(1, 6))
def test_numbers_round_trip(numbers: list[int], more: int, digits: int) -> None:
    """Any numbers in any order come back as they were; a run is one range."""
    assert parse(fold(numbers, digits)) == numbers
    first = sum(numbers[:1])
    assert fold(range(first, first + more + 1), digits).count(",") == 0


NAMES = st.from_regex(r"\A[a-z0-9][a-z0-9._-]{0,6}[0-9]{0,20}\Z")
RACKS = st.builds("rack{}node{:02d}".format, st.integers(0, 3), st.integers(0, 120))


@given(st.lists(NAMES | RACKS), st.text(alphabet="n0129-,[]x ", max_size=24))
def test_names_round_trip(names: list[str], text: str) -> None:
    """Any names in any order, repeated or not, come back as they were; so do those of any text that is a list."""
    assert expand(fold_names(names)) == names
    with suppress(ValueError):
        names = expand(text)
    assert expand(fold_names(names)) == names


@each(("numbers", "digits", "text"), [
    ([], 4, ""), ([7], 4, "r0007"), ([*range(1, 104), 205], 4, "r[0001-0103,0205]"),
    ([3, 4, 1, 2], 2, "r[03-04,01-02]"), ([2, 1, 0], 1, "r[2,1,0]"), ([5, 5], 1, "r[5,5]"),
    ([9, 10], 1, "r[9-10]"),
])  # fmt: skip
def test_looks(numbers: list[int], digits: int, text: str) -> None:
    """Runs fold, order stays, one rack needs no brackets; ten racks are numbered 0 to 9, an eleventh takes a digit."""
    assert fold(numbers, digits) == text
    assert parse(text) == numbers
    assert [width(racks) for racks in (0, 1, 10, 11, 23_200)] == [1, 1, 1, 2, 5]


@each("text", ["0001", "r", "r[]", "r[1,]", "r[2-1]", "x[1]", "r[1] ", "r[1-2-3]", "r[-1]", "r1,r2", "r[\u0661]"])
def test_refuses_what_is_not_a_list(text: str) -> None:
    with pytest.raises(ValueError, match=r"write"):
        parse(text)


@each(("names", "text"), [
    (["rack1node01", "rack1node02", "rack2node01", "rack2node02"], "rack1node[01-02],rack2node[01-02]"),
    (["n3", "n2", "n1"], "n[3,2,1]"), (["n01", "n02", "n3"], "n[01-02,3]"), (["n08", "n09", "n10"], "n[08-10]"),
    (["n99", "n100"], "n[99-100]"), (["n9", "n010"], "n[9,010]"), (["n1", "login", "n2"], "n1,login,n2"),
    (["r1n1x", "r1n2x"], "r1n1x,r1n2x"), (["007", "008"], "[007-008]"), (["n1", "n1", "n2"], "n[1,1-2]"),
])  # fmt: skip
def test_folds_as_slurm_does(names: list[str], text: str) -> None:
    """The last number alone folds, padding is kept, order too; brackets turn fastest from the left."""
    assert fold_names(names) == text
    assert expand(text) == names
    assert " ".join(expand("n[1-2]s[1-2]p[3-4]")) == "n1s1p3 n1s1p4 n2s1p3 n2s1p4 n1s2p3 n1s2p4 n2s2p3 n2s2p4"
    assert expand("r[1-2]n[08-09]-ib") == ["r1n08-ib", "r1n09-ib", "r2n08-ib", "r2n09-ib"]
    # Slurm refuses a range of more than 65,536 names.
    assert fold_names(f"n{i}" for i in range(1, MAX_RANGE + 2)) == f"n[1-{MAX_RANGE},{MAX_RANGE + 1}]"


@each(("text", "complaint"), [
    ("n[1-4", "a bracket is not closed"), ("n1]", "brackets do not match"), ("n[[1]]", "brackets do not match"),
    ("n[]", "neither a number nor a range"), ("n[1-]", "neither a number nor a range"),
    ("n[1,,2]", "neither a number nor a range"), ("n[a-b]", "neither a number nor a range"),
    ("n[\u0661]", "neither a number nor a range"), (f"n[{'9' * 5000}]", "neither a number nor a range"),
    ("n[4-1]", "runs backwards"), ("n[1-03]", "padded differently"), ("n1,,n2", "an item is empty"),
    ("n1,", "an item is empty"), (",", "an item is empty"), ("n1 n2", "have no blanks"),
    ("n1 n2" + 50 * "x", "'n1 n2" + 35 * "x" + "': names have no blanks"),
    (f"n[1-{MAX_NAMES + 1}]", "more than 4,000,000"), ("n[1-9999][1-9999]", "more than 4,000,000"),
    ("n[1-3000000],m[1-3000000]", "more than 4,000,000"),
])  # fmt: skip
def test_refuses_typing_slips(text: str, complaint: str) -> None:
    """Slurm guesses at some of these; the planner names them."""
    with pytest.raises(ValueError, match=complaint):
        expand(text)


def test_stages_of_two_sites_are_groups_by_site() -> None:
    """A rack of no stages is named."""
    plan = small()
    sizes = {site: (n, plan.layout.rack_stages) for site, n in plan.layout.racks_per_stage_by_site.items()}
    assert {k.name: (k.size, k.count) for k in job_of_plan(plan).groups} == sizes
    for stages in (0, -3):
        with pytest.raises(InputError, match=f"mine: layout.stages_per_rack: {stages} stages share a rack"):
            job_of_plan(edited_at(plan, "layout.stages_per_rack", stages), "mine")


def test_a_plan_of_racks_of_several_hosts_is_a_job_of_those() -> None:
    """A rack that no host starts alone is no node unless that is said; its hosts stay together."""
    plan = stored("instances/one-rack.json")
    with pytest.raises(InputError, match=r"a rack has 72 GPUs at work, .* give --gpus-per-node"):
        read_job(plan)
    job = read_job(plan, 4)
    assert (job.nodes, job.nodes_per_member, job.segment_nodes, job.gpus_per_node) == (18, 18, 18, 4)
    assert read_job(plan, 72).nodes == 1
