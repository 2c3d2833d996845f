"""`planner topology`: a cluster's topology checked, summed up and written for other schedulers."""

from pathlib import Path

import pytest
from cluster_worlds import tree
from commands import invoke
from each_case import each

from planner.cluster import Topology, TopologyBlock
from planner.errors import InputError
from planner.formats.cluster_files import TOPOLOGY_WRITERS, read_topology

TREE = tree([8, 8, 4], 2, block=4)


@each(("topology", "says"), [
    (TREE, "20 nodes, 3 leaves of 4 to 8, 2 switches of tier 2, 5 blocks inside the leaves\n"),
    (tree([1], 2, block=1), "1 node, 1 leaf of 1, 1 switch of tier 2, 1 block inside the leaves\n"),
])  # fmt: skip
def test_a_topology_is_summed_up(topology: Topology, says: str, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TOPOLOGY_WRITERS["yaml"](topology))
    done = invoke("topology", tmp_path / "t.yaml")
    assert (done.exit_code, done.stdout) == (0, says)


@each("form", ["conf", "yaml"])
def test_what_is_written_reads_the_same(tmp_path: Path, form: str) -> None:
    """From a file to another format and back: the same leaves under the same switches."""
    (tmp_path / "t.yaml").write_text(TOPOLOGY_WRITERS["yaml"](TREE))
    assert invoke("topology", tmp_path / "t.yaml", "--format", form, "-o", tmp_path / f"again.{form}").exit_code == 0
    again = read_topology(tmp_path / f"again.{form}")
    assert again.switches == TREE.switches
    assert again.blocks == (TREE.blocks if form == "yaml" else ())


def test_blocks_alone_are_a_level_for_kueue() -> None:
    blocks = TopologyBlock(name="b0", nodes=("n0", "n1")), TopologyBlock(name="b1", nodes=("n2",))
    text = TOPOLOGY_WRITERS["kueue"](Topology(kind="block", blocks=blocks))
    domains = [text.count(f"accelerator.topograph.run/domain: {block.name}") for block in blocks]
    assert (text.count("nodeLabel: "), domains) == (2, [2, 1])


@each(("args", "says"), [
    (["--format", "xml"], "must be one of conf, yaml, kueue, volcano"),
    (["-o", "x"], "say in which --format"),
    (["--name", "no"], "no topology 'no'"),
])  # fmt: skip
def test_bad_input_is_named(tmp_path: Path, args: list[str], says: str) -> None:
    """What cannot be done is refused before anything is written."""
    (tmp_path / "t.yaml").write_text(TOPOLOGY_WRITERS["yaml"](TREE))
    with pytest.raises(InputError, match=says):
        invoke("topology", tmp_path / "t.yaml", *args, catch_exceptions=False)
