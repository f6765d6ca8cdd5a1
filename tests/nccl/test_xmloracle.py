"""The reader and the loader against what NCCL itself made of the corpus (nccl_oracle, two versions)."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rackyard.nccl.element import Element
from rackyard.nccl.hardware import Hardware, HostCpu, HostGpu, HostNet
from rackyard.nccl.load import load
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import Parsed, parse
from rackyard.nccl.xmlrefused import TopologyRefused
from rackyard.nccl.xmltrim import trim

pytestmark = pytest.mark.corpus

VERSIONS = {"": Version(2, 30, 7), "_nccl_2.29.7": Version(2, 29, 7)}
# The harness ran on this CPU and gave this hash to its host (nccl_oracle/README.md, sections 2 and 5).
MACHINE = HostCpu("x86_64", "GenuineIntel", 6, 207)
HOST_HASH = 0x1234567890ABCDEF


def cases(corpus: Path, suffix: str) -> list[tuple[Path, dict[str, Any]]]:
    """Each input with the recorded result; those without an input (the file does not exist) are left out."""
    oracle = corpus / "topology" / "nccl_oracle"
    found = []
    for result in sorted(oracle.glob(f"*{suffix}/*.json")):
        folder = result.parent.name.removesuffix("_nccl_2.29.7")
        if suffix == "" and result.parent.name != folder:
            continue
        recorded = json.loads(result.read_bytes())
        source = recorded["settings"].get("source")
        if "does not exist" in recorded["settings"]["note"]:
            continue
        path = corpus / "topology" / "nccl_topo" / source if source else oracle / folder / (result.stem + ".xml")
        if path.is_file():
            found.append((path, recorded))
    return found


def mine(element: Element) -> list[Any]:
    return [element.name, element.single, dict(element.attrs), [mine(child) for child in element.children]]


def theirs(node: dict[str, Any]) -> list[Any]:
    attrs: dict[str, str] = {}
    for key, value in node["attrs"]:
        attrs.setdefault(key, value)
    return [node["name"], node["single"], attrs, [theirs(child) for child in node["subs"]]]


def read(path: Path, recorded: dict[str, Any], version: Version) -> Parsed:
    room = recorded["settings"].get("max-nodes")
    return parse(path.read_bytes(), path.name, version, int(room) if room else None)


@pytest.mark.parametrize("suffix", VERSIONS)
def test_outcome_and_message_of_parsing(corpus: Path, suffix: str) -> None:
    counts: Counter[str] = Counter()
    for path, recorded in cases(corpus, suffix):
        died = recorded["result"]["stage"] == "parse"
        try:
            read(path, recorded, VERSIONS[suffix])
        except TopologyRefused as error:
            assert died, f"{path.name}: {error}"
            assert error.nccl_result == recorded["result"]["name"], path.name
            told = [text for _, level, _, text in recorded.get("log", ()) if level == "WARN"]
            assert not told or error.nccl_message in told, path.name
            counts["refused, with NCCL's message" if told else "refused"] += 1
        else:
            assert not died, path.name
            counts["accepted"] += 1
    print(f"NCCL {VERSIONS[suffix]}: {dict(counts)}")
    assert counts.total() > 200


def test_trees(corpus: Path) -> None:
    counts: Counter[str] = Counter()
    for path, recorded in cases(corpus, ""):
        tree = recorded.get("xml")
        if tree is None or recorded["result"]["stage"] == "parse" or "placeholders" in recorded["settings"]["note"]:
            continue
        parsed = read(path, recorded, VERSIONS[""])
        assert [mine(root) for root in parsed.roots] == [theirs(root) for root in tree["roots"]], path.name
        assert parsed.nodes == tree["nNodes"], path.name
        counts["trees"] += 1
        if "xml_after_trim" in recorded and parsed.root is not None:
            trim(parsed.root)
            assert mine(parsed.root) == theirs(recorded["xml_after_trim"]["roots"][0]), path.name
            counts["trimmed"] += 1
    print(dict(counts))
    assert counts["trees"] > 150
    assert counts["trimmed"]


def test_published_dump_tree(corpus: Path) -> None:
    """The public GB300 dumps: equal but for what was redacted in them."""
    for path, recorded in cases(corpus, ""):
        if "placeholders" in recorded["settings"]["note"]:
            got = read(path, recorded, VERSIONS[""])
            assert got.nodes == recorded["xml"]["nNodes"]
            assert _without_hidden(mine(got.roots[0])) == _without_hidden(theirs(recorded["xml"]["roots"][0]))


def _without_hidden(tree: list[Any]) -> list[Any]:
    attrs = {key: value for key, value in tree[2].items() if key not in ("host_hash", "guid")}
    return [tree[0], tree[1], attrs, [_without_hidden(child) for child in tree[3]]]


def hardware(lines: list[str]) -> Hardware:
    """The simulated host of a recorded result."""
    gpus, nets = [], []
    for line in lines:
        kind, _, text = line.partition(":")
        words = text.split(",")
        if kind == "gpu":
            busid, sm, links, target, *rest = words
            c2c, mbps, generation, width = (int(word or 0) for word in rest)
            gpus.append(HostGpu(busid, int(sm), int(links), target or None, c2c, mbps, generation, width))
        else:
            name, busid, speed, port, guid, gdr = words
            nets.append(HostNet(name, busid or None, int(speed), int(port), int(guid, 16), gdr == "1"))
    return Hardware(tuple(gpus), tuple(nets), MACHINE, HOST_HASH)


def test_fused_trees_of_ranks(corpus: Path) -> None:
    count = 0
    for path, recorded in cases(corpus, ""):
        if recorded["settings"]["mode"] != "ranks" or "xml_fused" not in recorded:
            continue
        parsed = read(path, recorded, VERSIONS[""])
        fused = load(parsed.root, hardware(recorded["settings"]["hardware"]), VERSIONS[""])
        assert mine(fused) == theirs(recorded["xml_fused"]["roots"][0]), path.name
        count += 1
    print(f"{count} fused trees equal")
    assert count >= 15
