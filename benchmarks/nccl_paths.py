"""Time to predict what NCCL makes of a topology, and agreement with NCCL's own results.

GB300 trays and an 18-tray rack are made here (`nccl_trays.py`). Timed are system and paths, and the graphs for both
sizes of communicator, each the median of some runs in this process; limits are for CPU time. Agreement is that of
``nccl_oracle.py``, by kind, for both versions; it is left out where the corpus is absent.

    python benchmarks/nccl_paths.py [--runs 5] [--corpus DIR] [--json benchmarks/results/nccl_paths.json]

Exit code 1 when a limit is missed or an agreement is below its bar.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from nccl_oracle import FOLDERS, agreement
from nccl_trays import rack

from rackyard.nccl.element import Element
from rackyard.nccl.paths_compute import Computed, compute, sized
from rackyard.nccl.search_graphs import search_graphs
from rackyard.nccl.version import Version

VERSION = Version(2, 30, 7)
RACK = 18
BARS = {"outcome": 0.98, "cells": 0.99, "hops": 0.95, "graphs": 0.90}
OTHER_BAR = 0.98


def timed(act: Callable[[], object], runs: int) -> tuple[float, float]:
    """Median seconds of wall and CPU time."""
    walls, cpus = [], []
    for _ in range(runs):
        wall, cpu = time.perf_counter(), time.process_time()
        act()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return statistics.median(walls), statistics.median(cpus)


def both_sizes(computed: Computed) -> str:
    """Search all graphs for both sizes of communicator; the rings in short."""
    graphs = [search_graphs(sized(computed, factor).system) for factor in (1, 2)]
    return " and ".join(ring.brief() for found in graphs if (ring := found.get("ring")))


def speed(runs: int) -> list[dict[str, Any]]:
    """Rows of the table of times."""
    inputs: list[tuple[str, Element, float, float | None]] = [
        ("tray, 4 GPUs", rack(1), 0.020, 1.0),
        ("tray, 1 GPU dark", rack(1, dark=frozenset({1})), 0.020, 1.0),
        (f"rack, {RACK} trays", rack(RACK), 2.0, None),
        (f"rack, {RACK} trays, 1 GPU dark", rack(RACK, dark=frozenset({5})), 2.0, None),
    ]
    rows = []
    for name, root, paths_limit, graphs_limit in inputs:
        computed = compute(root, VERSION)
        few = runs if graphs_limit else 1
        wall, cpu = timed(partial(compute, root, VERSION), runs)
        rows.append({"input": name, "what": "system and paths", "wall_s": wall, "cpu_s": cpu, "limit_s": paths_limit})
        wall, cpu = timed(partial(both_sizes, computed), few)
        rows.append(
            {"input": name, "what": "graphs, both sizes", "wall_s": wall, "cpu_s": cpu, "limit_s": graphs_limit}
            | {"rings": both_sizes(computed) if few > 1 else ""}
        )
    return rows


def agreements(corpus: Path) -> list[dict[str, Any]]:
    """Rows of the table of agreement; none without the corpus."""
    if not (corpus / "nccl_oracle").is_dir():
        return []
    return [
        {"version": version, "kind": kind, "equal": tally.equal, "total": tally.total, "bar": BARS.get(kind, OTHER_BAR)}
        for version in sorted(FOLDERS)
        for kind, tally in agreement(corpus, version).items()
        if tally.total
    ]


def main() -> None:
    """Measure, print the tables, and end with 1 when something is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--corpus", type=Path, default=Path(__file__).parents[2] / "shared" / "data" / "topology")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"NCCL {VERSION}, median of {given.runs} runs (graphs of a rack: 1); {machine}; load {load}; {date.today()}")
    rows = speed(given.runs)
    print(f"{'input':<28}{'what':<20}{'wall s':>9}{'CPU s':>9}{'limit':>7}  rings found")
    for row in rows:
        limit = "-" if row["limit_s"] is None else f"{row['limit_s']:g}"
        start = f"{row['input']:<28}{row['what']:<20}{row['wall_s']:>9.3f}{row['cpu_s']:>9.3f}{limit:>7}"
        print(f"{start}  {row.get('rings', '')}".rstrip())
    agreed = agreements(given.corpus)
    print(
        f"{'NCCL':<9}{'kind':<14}{'equal':>8}{'of':>8}{'share':>10}{'bar':>7}" if agreed else "no corpus: not compared"
    )
    for row in agreed:
        share = f"{100 * row['equal'] / row['total']:.2f} %"
        start = f"{row['version']:<9}{row['kind']:<14}{row['equal']:>8}{row['total']:>8}"
        print(f"{start}{share:>10}{100 * row['bar']:>5.0f} %")
    if given.json:
        about = {
            "date": str(date.today()),
            "command": " ".join(sys.argv),
            "machine": machine,
            "load": load,
            "runs": given.runs,
        }
        given.json.write_text(json.dumps({**about, "speed": rows, "agreement": agreed}, indent=2) + "\n")
    late = any(row["limit_s"] is not None and row["cpu_s"] > row["limit_s"] for row in rows)
    sys.exit(1 if late or any(row["equal"] < row["bar"] * row["total"] for row in agreed) else 0)


if __name__ == "__main__":
    main()
