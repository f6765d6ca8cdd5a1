"""Agreement of `rackyard.nccl` with results of NCCL's own topology code, by kind.

    python benchmarks/nccl_oracle.py [--corpus DIR] [--version 2.30.7|2.29.7] [--list]

DIR is the corpus' ``topology`` folder. Each case is an input and a JSON result (schema 1, described in the corpus'
README). Exit status 1 if anything differs. Graphs are compared by ``nccl_oracle_graphs.py`` beside this file, if it is
there: its ``compare(document, computed)`` yields (kind, equal, total, differences).
"""

import argparse
import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

# Found beside this file, also when this one is loaded by its path.
from nccl_oracle_forms import (
    gdr_form,
    limits_form,
    local_gpu_form,
    local_nets_form,
    paths_form,
    system_form,
)

from rackyard.nccl.comm import CommOptions
from rackyard.nccl.element import Element
from rackyard.nccl.hardware import Hardware, HostCpu, HostGpu, HostNet
from rackyard.nccl.load import load
from rackyard.nccl.numbers import as_float
from rackyard.nccl.paths_compute import Computed, compute, sized
from rackyard.nccl.paths_summary import p2p_channels_per_peer
from rackyard.nccl.system_print import printed
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import parse
from rackyard.nccl.xmlrefused import TopologyRefused
from rackyard.nccl.xmltrim import trim as trim_xml

Document = dict[str, Any]
Comparison = tuple[str, int, int, list[str]]

# The machine on which the results were made: it fills in missing CPU attributes and the host hash.
ORACLE_HOST_HASH = 0x1234567890ABCDEF
ORACLE_CPU = HostCpu("x86_64", "GenuineIntel", 6, 207)
FOLDERS = {"2.30.7": ("real", "synthetic"), "2.29.7": ("real_nccl_2.29.7", "synthetic_nccl_2.29.7")}
KINDS = (
    "outcome",
    "dropped",
    "system",
    "cells",
    "hops",
    "limits",
    "gdr",
    "localnets",
    "localgpu",
    "p2pchannels",
    "message",
    "printed",
)


@dataclass
class Tally:
    """Counts of one kind, and what differs."""

    equal: int = 0
    total: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Part that is equal, 1.0 if nothing was compared."""
        return self.equal / self.total if self.total else 1.0


@dataclass(frozen=True)
class Case:
    """One input with NCCL's result."""

    name: str
    document: Document
    data: bytes


def cases(corpus: Path, version: str) -> Iterator[Case]:
    """All cases of a version, real files first."""
    oracle = corpus / "nccl_oracle"
    for folder in FOLDERS[version]:
        for path in sorted((oracle / folder).glob("*.json")):
            document = json.loads(path.read_text())
            if "xml" not in document and "placeholders" in document["settings"].get("note", ""):
                document["xml"] = json.loads((oracle / "real" / path.name).read_text())["xml"]
            source = document["settings"].get("source")
            file = corpus / "nccl_topo" / source if source else oracle / "synthetic" / f"{path.stem}.xml"
            yield Case(path.stem, document, b"" if path.stem.endswith("file_missing") else file.read_bytes())


def run(case: Case, version: Version) -> Computed:
    """Our result for a case. Raises TopologyRefused."""
    settings = case.document["settings"]
    tree = parse(case.data, case.name, version, int(settings.get("max-nodes", 0)) or None).root
    if settings["mode"] == "ranks":
        tree = load(tree, hardware(settings["hardware"]), version)
    elif tree is not None:
        _prepare(tree, settings, case.document)
    return compute(tree, version, options(settings))


def _prepare(tree: Element, settings: Document, document: Document) -> None:
    if "placeholders" in settings.get("note", ""):
        put = json_tree(document["xml"]["roots"][0])
        for name, key in (("cpu", "host_hash"), ("net", "guid")):
            for ours, theirs in zip(tree.find_all(name), put.find_all(name), strict=True):
                ours.attrs[key] = theirs.attrs[key]
    if settings.get("trim-xml"):
        trim_xml(tree)
    if settings.get("net-per-nic"):
        for dev, nic in enumerate(tree.find_all("nic")):
            nic.children.append(
                Element("net", {"name": f"net{dev}", "dev": str(dev), "speed": "100000", "port": "1", "gdr": "1"})
            )


def json_tree(node: Document) -> Element:
    """A tree as the results hold it."""
    return Element(node["name"], dict(reversed(node["attrs"])), [json_tree(sub) for sub in node["subs"]])


def options(settings: Document) -> CommOptions:
    """The communicator of a case."""
    rank = settings.get("rank")
    return CommOptions(
        rank=None if rank is None else int(rank),
        mnnvl=not settings.get("no-mnnvl"),
        cliques=_by_host(settings.get("clique", "")),
        uuids=_by_host(settings.get("uuid", "")),
    )


def _by_host(text: str) -> dict[int, int]:
    pairs = [pair.split(":") for pair in text.split(",") if pair]
    return {int(host): int(value) for host, value in pairs}


def hardware(lines: Iterable[str]) -> Hardware:
    """The simulated host of a case in mode ranks."""
    gpus: list[HostGpu] = []
    nets: list[HostNet] = []
    for line in lines:
        kind, _, rest = line.partition(":")
        parts = rest.split(",")
        if kind == "gpu":
            sm, links, c2c, mbps, gen, width = (int(parts[n] or 0) for n in (1, 2, 4, 5, 6, 7))
            gpus.append(HostGpu(parts[0], sm, links, parts[3] or None, c2c, mbps, gen, width))
        else:
            name, busid, mbps_text, port, guid, gdr = parts
            nets.append(HostNet(name, busid or None, int(mbps_text), int(port), int(guid, 16), gdr != "0"))
    return Hardware(tuple(gpus), tuple(nets), ORACLE_CPU, ORACLE_HOST_HASH)


def compare(case: Case, version: Version, *, graphs: bool = True) -> Iterator[Comparison]:
    """Our result for a case against NCCL's, kind by kind."""
    document = case.document
    theirs = _outcome_of(document)
    message = ""
    try:
        computed = run(case, version)
        ours = "ok"
    except TopologyRefused as refused:
        message = refused.nccl_message
        stage = "harness" if refused.stage == "communicator" else refused.stage
        computed, ours = None, "crash" if refused.crashes else f"{stage} {refused.nccl_result}"
    yield _one("outcome", ours, theirs)
    warned = [text for stage, level, _, text in document.get("log", []) if level == "WARN"]
    if computed is None and warned and ours == theirs:
        # The hash of a host without any cpu is that of the machine at hand.
        yield _one("message", *(re.sub("localHostHash = 0x[0-9a-f]+", "", text) for text in (message, warned[-1])))
    if computed is not None and theirs == "ok":
        yield from _compare_accepted(document, computed)
        module = _graphs_module() if graphs else None
        if module is not None:
            yield from module.compare(document, computed)


def _outcome_of(document: Document) -> str:
    if document["outcome"] == "ok":
        return "ok"
    if document["outcome"] == "crash":
        return "crash"
    stage = document["result"]["stage"]
    stage = "harness" if stage.startswith("harness") else "paths" if stage.startswith("paths") else stage
    return f"{stage} {document['result']['name']}"


def _compare_accepted(document: Document, computed: Computed) -> Iterator[Comparison]:
    before = system_form(computed.before_trim)
    yield from _compare_system(before, document["system"])
    after = system_form(computed.system) if computed.removed else None
    left: Document = document.get("system_after_trim") or document["system"]
    yield _one("dropped", [gpu["id"] for gpu in (after or before)["gpus"]], [gpu["id"] for gpu in left["gpus"]])
    comm = computed.comm
    ours = {
        "rank": comm.rank,
        "MNNVL": int(comm.mnnvl),
        "hostsWithGpus": comm.hosts_with_gpus,
        "gpus": comm.n_ranks,
        "minCompCap": max(comm.min_sm, 0),
        "maxCompCap": max(comm.max_sm, 0),
    }
    yield _one("limits", ours, document["comm"], "comm")
    if "system_after_trim" in document and after:
        yield from _compare_system(after, document["system_after_trim"])
    yield from _compare_paths(paths_form(computed.system), document["paths"])
    if "paths_before_trim" in document:
        yield from _compare_paths(paths_form(computed.before_trim), document["paths_before_trim"])
    lines = [text for stage, _, _, text in document.get("log", []) if stage == "print"]
    if lines and document.get("scenarios"):
        mine = [line.rstrip() for line in printed(sized(computed, 1).system)]
        different = [f"{one!r} here, {two!r} in NCCL" for one, two in zip_longest(mine, lines) if one != two]
        yield "printed", int(not different), 1, different[:1]
    for scenario in document.get("scenarios", []):
        yield from _compare_scenario(scenario, computed)


def _compare_system(ours: Document, theirs: Document) -> Iterator[Comparison]:
    for key, value in theirs.items():
        mine = ours[key]
        if isinstance(value, dict):
            mine = {name: mine[name] for name in value}
        if isinstance(value, list) and value and isinstance(value[0], dict):
            mine = [{name: entry[name] for name in value[0]} for entry in mine]
        yield _one("system", mine, _floats(value), key)


def _floats(value: Any) -> Any:
    """A JSON value with its fractions as 32-bit floats."""
    if isinstance(value, float):
        return as_float(value)
    if isinstance(value, list):
        return [_floats(inner) for inner in value]
    return {key: _floats(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def _compare_paths(ours: dict[str, dict[str, list[Any]]], theirs: Document) -> Iterator[Comparison]:
    cells, hops = Tally(), Tally()
    for source in {**ours, **theirs}:
        mine, other = ours.get(source, {}), theirs.get(source, {})
        for target in {**mine, **other}:
            one: Any = mine.get(target)
            two: Any = _floats(other.get(target))
            for tally, part in ((cells, slice(0, 2)), (hops, slice(2, 3))):
                tally.total += 1
                if one and two and one[part] == two[part]:
                    tally.equal += 1
                else:
                    tally.differences.append(f"{source} to {target}: {one} here, {two} in NCCL")
    yield "cells", cells.equal, cells.total, cells.differences
    yield "hops", hops.equal, hops.total, hops.differences


def _compare_scenario(scenario: Document, computed: Computed) -> Iterator[Comparison]:
    view = sized(computed, scenario["nRanksFactor"])
    system = view.system
    ours = limits_form(view)
    for key, value in ours.items():
        if key in scenario:
            yield _one("limits", value, _floats(scenario[key]), f"x{scenario['nRanksFactor']} {key}")
    for kind, key, form in (
        ("localgpu", "localGpuOfNet", local_gpu_form),
        ("gdr", "gdr", gdr_form),
        ("localnets", "localNets", local_nets_form),
    ):
        if key in scenario:
            yield _one(kind, form(system), scenario[key])
    if "p2pnChannelsPerPeer" in scenario:
        yield _one("p2pchannels", p2p_channels_per_peer(system, view.comm), scenario["p2pnChannelsPerPeer"])


def _one(kind: str, ours: object, theirs: object, what: str = "") -> Comparison:
    equal = ours == theirs
    return kind, int(equal), 1, [] if equal else [f"{what or kind}: {ours} here, {theirs} in NCCL"]


def _graphs_module() -> ModuleType | None:
    return importlib.import_module("nccl_oracle_graphs") if importlib.util.find_spec("nccl_oracle_graphs") else None


def agreement(corpus: Path, version: str, *, graphs: bool = True) -> dict[str, Tally]:
    """Agreement of one version by kind, over all cases; ``graphs`` says whether to search them, which takes longer."""
    tallies = {kind: Tally() for kind in KINDS}
    for case in cases(corpus, version):
        for kind, equal, total, differences in compare(case, Version.parse(version), graphs=graphs):
            tally = tallies.setdefault(kind, Tally())
            tally.equal += equal
            tally.total += total
            tally.differences += [f"{case.name}: {text}" for text in differences]
    return tallies


def main() -> int:
    """Print the agreement by kind; 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, default=Path(__file__).parents[2] / "shared" / "data" / "topology")
    parser.add_argument("--version", choices=sorted(FOLDERS), action="append")
    parser.add_argument("--list", action="store_true", help="show every difference")
    arguments = parser.parse_args()
    if not (arguments.corpus / "nccl_oracle").is_dir():
        # Nothing compared is no agreement.
        sys.exit(f"no oracle at {arguments.corpus}: give the corpus' topology folder with --corpus")
    differs = False
    for version in arguments.version or sorted(FOLDERS):
        print(f"NCCL {version}")
        for kind, tally in agreement(arguments.corpus, version).items():
            share = f"{100 * tally.share:6.2f} %" if tally.total else "not in these results"
            print(f"  {kind:12} {tally.equal:7} of {tally.total:7}  {share}")
            differs = differs or tally.equal < tally.total
            for text in tally.differences if arguments.list else []:
                print(f"    {text}")
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
