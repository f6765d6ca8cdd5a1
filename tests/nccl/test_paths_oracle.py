"""Agreement with NCCL's own topology code and with the log of a real run."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from rackyard.nccl.paths_compute import compute, sized
from rackyard.nccl.system_print import printed
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import parse

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
BARS = {"outcome": 0.98, "cells": 0.99, "hops": 0.95, "dropped": 0.99, "system": 0.99, "limits": 0.99}


@pytest.fixture(scope="module")
def oracle() -> Any:
    spec = importlib.util.spec_from_file_location("nccl_oracle", BENCHMARKS / "nccl_oracle.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name.
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(__import__("sys").modules, "nccl_oracle", module)
        patch.syspath_prepend(str(BENCHMARKS))
        spec.loader.exec_module(module)
    return module


@pytest.mark.corpus
@pytest.mark.parametrize("version", ["2.30.7", "2.29.7"])
def test_agreement_with_nccl(oracle: Any, corpus: Path, version: str) -> None:
    tallies = oracle.agreement(corpus / "topology", version, graphs=False)
    assert tallies["outcome"].total > 200
    below = {kind: tally.differences[:5] for kind, tally in tallies.items() if tally.share < BARS.get(kind, 0.98)}
    assert below == {}


@pytest.mark.corpus
def test_the_printed_system_and_paths_of_a_real_gb300_run(corpus: Path) -> None:
    """Two trays, NCCL 2.29.7. The log was retyped from a published one, so leading blanks do not count."""
    folder = corpus / "topology"
    log = (folder / "nccl_log" / "gb300_2tray_healthy_rank3_graph_excerpt.log").read_text()
    lines = [line.split("NCCL INFO ", 1)[1] for line in log.splitlines() if "NCCL INFO " in line]
    first = next(n for n, line in enumerate(lines) if line.startswith("=== System"))
    end = next(n for n, line in enumerate(lines) if line.startswith("GIN/1-0 :"))
    theirs = [line.strip() for line in lines[first : end + 1]]
    # What the published file hides, in the order of the file; the guids are in the log.
    guids = iter(re.findall(r"NET/\d-0 \(0/([0-9a-f]+)/", log))
    text = (folder / "nccl_topo" / "gb300" / "mnnvl_topo_2tray_0405.xml").read_text()
    text = re.sub(r'guid="[^"]*"', lambda _: f'guid="0x{next(guids)}"', text)
    text = text.replace("0xHOSTHASH_A", "0xa").replace("0xHOSTHASH_B", "0xb")
    version = Version(2, 29, 7)
    computed = compute(parse(text.encode(), "two trays", version).root, version)
    ours = [line.strip() for line in printed(sized(computed).system)]
    assert len(theirs) == 76
    assert ours == theirs
    cells = [cell for line in ours for cell in re.findall(r"\(\d+/[\d.]+/[A-Z0-9]{3}\)", line)]
    assert len(cells) == 200
