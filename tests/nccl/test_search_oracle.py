"""Agreement of the graph search with NCCL's own, and with the dump of a real GB300 run."""

import importlib
import importlib.util
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rackyard.nccl.graphxml import read_graphs, resolve, write_graphs
from rackyard.nccl.paths_compute import compute, sized
from rackyard.nccl.search_graphs import search_graphs
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import parse
from rackyard.nccl.xmlrefused import TopologyRefused

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
BAR = 0.99
QUICK_GPUS = 2
MOST_GPUS = 16


@pytest.fixture(scope="module")
def oracle() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("nccl_oracle"), importlib.import_module("nccl_oracle_graphs")


def agreement(
    oracle: Any, corpus: Path, version: str, least: int, most: int
) -> tuple[Counter[str], Counter[str], list[str]]:
    """Equal and all graphs by kind, over the cases with ``least`` to ``most`` GPUs, and what differs."""
    cases, graphs = oracle
    equal: Counter[str] = Counter()
    total: Counter[str] = Counter()
    differences: list[str] = []
    for case in cases.cases(corpus / "topology", version):
        gpus = case.document.get("comm", {}).get("gpus", 0)
        if case.document["outcome"] != "ok" or not least <= gpus <= most:
            continue
        try:
            computed = cases.run(case, Version.parse(version))
        except TopologyRefused:
            differences.append(f"{case.name}: refused here")
            continue
        for kind, same, count, texts in graphs.compare(case.document, computed):
            equal[kind] += same
            total[kind] += count
            differences += [f"{case.name}: {text}" for text in texts]
    return equal, total, differences


@pytest.mark.corpus
@pytest.mark.parametrize("version", ["2.30.7", "2.29.7"])
def test_graphs_of_small_systems_agree_with_nccl(oracle: Any, corpus: Path, version: str) -> None:
    equal, total, differences = agreement(oracle, corpus, version, 1, QUICK_GPUS)
    assert total["graphs"] > 500
    assert all(equal[kind] >= BAR * total[kind] for kind in total), differences[:5]


@pytest.mark.corpus
@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.30.7", "2.29.7"])
def test_graphs_of_larger_systems_agree_with_nccl(oracle: Any, corpus: Path, version: str) -> None:
    equal, total, differences = agreement(oracle, corpus, version, QUICK_GPUS + 1, MOST_GPUS)
    assert total["graphs"] > 200
    assert all(equal[kind] >= BAR * total[kind] for kind in total), differences[:5]


@pytest.mark.corpus
@pytest.mark.slow
@pytest.mark.parametrize("version", ["2.30.7", "2.29.7"])
def test_graphs_of_racks_agree_with_nccl(oracle: Any, corpus: Path, version: str) -> None:
    equal, total, differences = agreement(oracle, corpus, version, MOST_GPUS + 1, 1000)
    assert total["graphs"] >= 4
    assert all(equal[kind] >= BAR * total[kind] for kind in total), differences[:5]


@pytest.mark.corpus
def test_the_graph_dump_of_a_real_gb300_run_comes_out_to_the_byte(corpus: Path) -> None:
    """One healthy tray, NCCL 2.29.7. What the published topology hides does not matter to one node."""
    folder = corpus / "topology" / "nccl_topo" / "gb300"
    version = Version(2, 29, 7)
    text = (folder / "mnnvl_topo_1tray_healthy.xml").read_text()
    text = re.sub(r'host_hash="[^"]*"', 'host_hash="0xa"', text)
    system = sized(compute(parse(text.encode(), "tray", version).root, version)).system
    graphs = search_graphs(system)
    dump = (folder / "mnnvl_graph_1tray_04.xml").read_text()
    assert write_graphs(graphs.found.values(), system) == dump
    for graph in (resolve(found, system, "dump") for found in read_graphs(dump.encode(), "dump", version)):
        ours = graphs.get(graph.name)
        assert graph.n_channels == 0 if ours is None else graph.channels == ours.channels
