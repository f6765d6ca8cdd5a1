"""Slurm's topology files: what slurmctld takes is read, what it refuses is told with its place."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rackyard.errors import SpecError, Where
from rackyard.fabric.readers import slurm_conf, slurm_yaml
from rackyard.fabric.readers.reader import Capture

TREE = """\
# two levels
switchname=core  SWITCHES=leaf[1-2] LinkSpeed=1800
SwitchName=leaf1 Nodes=n[01-02],\\
n05   # the fifth is a spare
SwitchName="leaf2" Nodes="n[03-04]"
"""
BLOCKS = """\
# rack11=nvl-1-1
BlockName=rack11 Nodes=srv[1101-1102]
BlockName=rack12 Nodes=srv[1201-1202]
BlockSizes=2,4
"""
YAML = """\
---
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - {switch: core, children: "leaf[1-2]"}
      - {switch: leaf1, nodes: "n[01-02]"}
      - {switch: leaf2, nodes: ["n03", "n04"]}
- topology: nvlink
  block: {block_sizes: [2, 4], blocks: [{block: b1, nodes: "n[01-02]"}, {block: b2, nodes: "n[03-04]"}]}
- topology: loop
  ring: {rings: [{ring: r0, nodes: "q[1-3]"}]}
- topology: cube
  torus3d:
    toruses:
      - name: pod
        dims: {x: 2, y: 1, z: 1}
        regions: [{anchor: {x: 0, y: 0, z: 0}, dims: {x: 2, y: 1, z: 1}, nodes: "w[1-2]"}]
- topology: plain
  flat: true
"""


def conf(text: str, limit: int = 1000) -> dict[str, tuple[str | None, tuple[str, ...]]]:
    facts = slurm_conf.parse(Capture("topology.conf", text.encode()), limit)
    return {fact.node: (fact.block, fact.tiers) for fact in facts.hosts}


def test_a_tree() -> None:
    assert conf(TREE) == {
        "n01": (None, ("leaf1", "core")),
        "n02": (None, ("leaf1", "core")),
        "n05": (None, ("leaf1", "core")),
        "n03": (None, ("leaf2", "core")),
        "n04": (None, ("leaf2", "core")),
    }
    source = slurm_conf.READER.read(Capture("topology.conf", TREE.encode())).hosts[0].source
    assert (source.file, source.line, source.text) == ("topology.conf", 3, "SwitchName=leaf1 Nodes=n[01-02],\\")


def test_blocks_under_the_names_that_topograph_comments() -> None:
    found = conf(BLOCKS)
    assert found["srv1102"] == ("nvl-1-1", ())
    assert found["srv1201"] == ("rack12", ())


def test_a_ring_is_neither_switch_nor_domain() -> None:
    assert conf("RingName=r0 Nodes=n[1-2]") == {"n1": (None, ()), "n2": (None, ())}


def test_two_leaves_of_a_node_are_both_told() -> None:
    facts = slurm_conf.parse(Capture("t", b"SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1"))
    assert [fact.tiers for fact in facts.hosts] == [("a",), ("b",)]


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("", 1, 1, "no SwitchName"),
        ("Nodes=n1", 1, 1, "can't begin"),
        ("SwitchName=a Node=n1", 1, 14, "did you mean Nodes?"),
        ("SwitchName=a Nodes=n1 SwitchName=b", 1, 23, "unknown key"),
        ("SwitchName=a Nodes=n1 Nodes=n2", 1, 23, "given twice"),
        ("SwitchName=a Nodes=n[1-", 1, 21, "not closed"),
        ("SwitchName=a \\\n  Nodes=n[3-1]", 2, 11, "backwards"),
        ("SwitchName=a nodes", 1, 14, "no Key=value"),
        ("include other.conf", 1, 1, "included file"),
        ("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2", 2, 12, "first is in line 1"),
        ("SwitchName=a Nodes=n1 Switches=b\nSwitchName=b", 1, 12, "both"),
        ("SwitchName=a Switches=b", 1, 12, "no other switch"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", 2, 12, "above itself"),
        (f"SwitchName={'a' * 65} Nodes=n1", 1, 12, "longer than 64"),
        ("BlockName=a Nodes=n[1-4]\nBlockSizes=4,12", 2, 12, "does not follow"),
        ("BlockName=a Nodes=n[1-4]\nBlockSizes=0", 2, 12, "does not follow"),
        ("BlockName=a Nodes=n[1-4]\nBlockSizes=4,x", 2, 12, "not a whole number"),
        ("BlockName=a Nodes=n1\nBlockName=a Nodes=n2", 2, 11, "given twice"),
        ("RingName=a Nodes=n[1-17]", 1, 10, "17 nodes"),
        ("SwitchName=a Nodes=n[1-2000]", 1, 20, "too many"),
        (
            "\n".join(["SwitchName=s0 Nodes=n1"] + [f"SwitchName=s{at} Switches=s{at - 1}" for at in range(1, 23)]),
            1,
            12,
            "22",
        ),
    ],
)
def test_what_slurm_refuses_is_shown_where_it_is(text: str, line: int, column: int, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        conf(text)
    assert says in str(caught.value)
    assert caught.value.where == Where("topology.conf", line, column)


def test_the_topologies_of_a_yaml_file() -> None:
    facts = slurm_yaml.READER.read(Capture("topology.yaml", YAML.encode()))
    assert [(fact.node, fact.block, fact.tiers) for fact in facts.hosts] == [
        ("n01", None, ("leaf1", "core")),
        ("n02", None, ("leaf1", "core")),
        ("n03", None, ("leaf2", "core")),
        ("n04", None, ("leaf2", "core")),
        ("n01", "b1", ()),
        ("n02", "b1", ()),
        ("n03", "b2", ()),
        ("n04", "b2", ()),
        *((name, None, ()) for name in ("q1", "q2", "q3", "w1", "w2")),
    ]
    assert facts.hosts[2].source.line == 8


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "says"),
    [
        ("leaf[1-2]", "leaf[1-3]", 6, 18, "no other switch"),
        ("leaf[1-2]", "leaf[1-", 6, 34, "not closed"),
        ("[2, 4]", "[2, 6]", 10, 24, "does not follow"),
        ("cluster_default", "clusterdefault", 3, 3, "did you mean cluster_default?"),
        ("flat: true", "flat: 7", 20, 9, "not known"),
        ("flat: true", "flat: true\n  ring: {rings: []}", 19, 3, "2 kinds"),
        ("topology: loop", "topology: nvlink", 11, 13, "first is in line 9"),
        ("ring: r0, nodes", "ring: r0, knots", 12, 29, "unknown key"),
    ],
)
def test_mistakes_in_yaml_are_shown_where_they_are(old: str, new: str, line: int, column: int, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        slurm_yaml.parse(Capture("f", YAML.replace(old, new).encode()))
    assert says in str(caught.value)
    assert caught.value.where == Where("f", line, column)


def test_each_knows_its_own() -> None:
    assert slurm_conf.READER.knows(TREE, "x")
    assert slurm_conf.READER.knows(BLOCKS, "x")
    assert not slurm_conf.READER.knows(YAML, "x")
    assert slurm_yaml.READER.knows(YAML, "x")
    assert not slurm_yaml.READER.knows(TREE, "x")
    assert not slurm_yaml.READER.knows("name: lab\nracks: {}\n", "x")


@pytest.mark.corpus
def test_the_files_of_the_corpus(corpus: Path) -> None:
    folder = corpus / "topology" / "k8s_sim"
    found = {}
    for file in sorted(folder.glob("*.conf")):
        capture = Capture(file.name, file.read_bytes())
        assert slurm_conf.READER.knows(capture.data[:4096].decode(), file.name)
        found[file.name] = slurm_conf.READER.read(capture).hosts
    tree = {fact.node: fact.tiers for fact in found["topograph-expected-tree.conf"]}
    blocks = {fact.node: fact.block for fact in found["topograph-expected-block.conf"]}
    assert tree["srv4207"] == ("leaf-4-2", "spine-4", "core")
    assert blocks["srv4207"] == "nvl-4-2"
    assert tree.keys() == blocks.keys()
    assert len(tree) == 96
    slurm = {fact.node: fact.tiers for fact in found["slurm-test133-topology.conf"]}
    assert len(slurm) == 400
    assert slurm["peta10219"] == ("leaf110", "grp11", "root")


# A hostlist stands for more names than it has bytes, so memory is only bounded by the limit on names; it is small here.
def test_fuzz_conf(fuzz: Callable[..., None]) -> None:
    fuzz(lambda data: slurm_conf.parse(Capture("f", data), 200), [TREE.encode(), BLOCKS.encode()])


def test_fuzz_yaml(fuzz: Callable[..., None]) -> None:
    slurm_yaml.parse(Capture("f", YAML.encode()))
    fuzz(lambda data: slurm_yaml.parse(Capture("f", data), 200), [YAML.encode()[:400], YAML.encode()[400:]])
