"""Topograph's models of all ages."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rackyard.errors import SpecError, Where
from rackyard.fabric.facts import HostFact
from rackyard.fabric.readers.reader import Capture
from rackyard.fabric.readers.topograph import READER, parse

MODEL = """\
switches:
  core:
    labels: {topology.kubernetes.io/region: here}
    switches: [spine-1, spine-2]
  spine-1:
    labels: {topology.kubernetes.io/zone: one}
    switches: [leaf-1]
  spine-2: {switches: [leaf-2]}
blocks:
- switch: leaf-1
  nodes: ["node[01-02]"]
  annotations: {accelerator.topology.test/domain: nvl-1}
- switch: leaf-2
  nodes: [node03, "node04"]
  labels: {network.topology.nvidia.com/accelerator: 12345678-1234-1234-1234-123456789abc.7}
- nodes: [login]
"""
OLD = """\
switches:
  core: {metadata: {region: here}, switches: [leaf-1]}
  leaf-1:
    nodes: ["n[1-2]"]
nodes:
  n1: {capacity_block_id: cb1, attributes: {nvlink: nvl1}}
  n2: {}
capacity_blocks:
  cb1: {nodes: ["n[2-3]"], attributes: {nvlink: nvl2}}
  cb2: {}
"""


def hosts(text: str) -> dict[str, HostFact]:
    return {fact.node: fact for fact in parse(Capture("m.yaml", text.encode()), 1000).hosts}


def test_a_model() -> None:
    found = hosts(MODEL)
    assert list(found) == ["node01", "node02", "node03", "node04", "login"]
    assert found["node02"].tiers == ("leaf-1", "spine-1", "core")
    assert found["node02"].block == "nvl-1"
    assert dict(found["node02"].labels) == {
        "topology.kubernetes.io/region": "here",
        "topology.kubernetes.io/zone": "one",
        "accelerator.topology.test/domain": "nvl-1",
    }
    assert found["node03"].tiers == ("leaf-2", "spine-2", "core")
    assert (found["node03"].cluster_uuid, found["node03"].clique_id) == ("12345678-1234-1234-1234-123456789abc", 7)
    assert found["node03"].block is None
    assert (found["login"].tiers, found["login"].block) == ((), None)
    assert found["node04"].source.line == 14


def test_a_model_of_before_july_2026() -> None:
    found = hosts(OLD)
    assert {name: (fact.tiers, fact.block) for name, fact in found.items()} == {
        "n1": (("leaf-1", "core"), "nvl1"),
        "n2": (("leaf-1", "core"), "nvl2"),
        "n3": ((), "nvl2"),
    }
    assert hosts(OLD.split("capacity_blocks")[0] + "capacity_blocks: [cb1]\n")["n1"].block == "nvl1"


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "says"),
    [
        ("switch: leaf-2", "switch: leaf-3", 13, 11, "no switch 'leaf-3'"),
        ("[leaf-2]", "[leaf-1]", 8, 24, "below 'spine-1' and below 'spine-2'"),
        ("{switches: [leaf-2]}", "{switches: [leaf-2, core]}", 3, 5, "above itself"),
        ("node03", "node02", 14, 11, "in two blocks"),
        ("[login]", "[]", 16, 10, "at least one"),
        ("node[01-02]", "node[02-01]", 11, 11, "backwards"),
        ("annotations", "annotation", 12, 3, "did you mean annotations?"),
    ],
)
def test_mistakes_are_shown_where_they_are(old: str, new: str, line: int, column: int, says: str) -> None:
    with pytest.raises(SpecError) as caught:
        hosts(MODEL.replace(old, new))
    assert says in str(caught.value)
    assert caught.value.where == Where("m.yaml", line, column)


def test_it_knows_its_own() -> None:
    assert READER.knows(MODEL, "x")
    assert READER.knows("# words\n\nblocks:\n- nodes: [a]\n", "x")
    assert not READER.knows("name: lab\nracks:\n  r01:\n", "x")


@pytest.mark.corpus
def test_the_model_of_the_corpus(corpus: Path) -> None:
    data = (corpus / "topology" / "k8s_sim" / "topograph-model-nvl72.yaml").read_bytes()
    assert READER.knows(data[:4096].decode(), "f")
    found = READER.read(Capture("f", data)).hosts
    assert len(found) == 72
    assert {(fact.block, fact.tiers) for fact in found} == {
        (f"nvl-{spine}-{leaf}", (f"leaf-{spine}-{leaf}", f"spine-{spine}", "core"))
        for spine in (1, 2)
        for leaf in (1, 2)
    }


@pytest.mark.corpus
def test_a_mock_nvml_profile_is_nobodys(corpus: Path) -> None:
    from rackyard.fabric.readers import kube_nodes, site_json, slurm_conf, slurm_yaml

    head = (corpus / "topology" / "k8s_sim" / "nvml-mock-gb300.yaml").read_bytes()[:4096].decode()
    for reader in (READER, kube_nodes.READER, site_json.READER, slurm_conf.READER, slurm_yaml.READER):
        assert not reader.knows(head, "nvml-mock-gb300.yaml")


def test_fuzz(fuzz: Callable[..., None]) -> None:
    parse(Capture("f", MODEL.encode()))
    fuzz(lambda data: parse(Capture("f", data), 200), [MODEL.encode()[:430], OLD.encode()])
