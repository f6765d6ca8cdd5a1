"""Discovering, auditing and labelling a site of 10,000 and of 25,000 nodes, from simulated captures.

For each node a tarball as `topo collect` makes it (compact: GPUs, NVLinks, sysfs table), and one ibnetdiscover of the
whole fabric, are written to a temporary folder first; that is not timed. Then, each in CPU seconds of this one process,
the best of three (all three are kept in the JSON):

    discover     read the files, parse, merge into one Site                limit 5 s at 10,000 nodes
    audit        every rule, with the site's pattern as the expectation    no limit asked
    label plan   labels of every node against a cluster that has them      limit 1 s, and no write
    one cable    the same after one cable was moved to another leaf        the labels that it touches, and no others

    python benchmarks/fabric.py [--nodes 10000 --nodes 25000] [--json benchmarks/results/fabric.json]

Exit code 1 when a limit is missed.
"""

import argparse
import json
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from rackyard.cli.captures import captures, readers
from rackyard.fabric import Site, simulate
from rackyard.fabric.discover import Discovered, discover
from rackyard.fabric.expect import audit
from rackyard.fabric.labelkeys import shipped
from rackyard.fabric.labelplan import LabelPlan, Ours, plan
from rackyard.fabric.labels import labels_of
from rackyard.fabric.simcaptures import captures as simulated
from rackyard.findings import Verdict

LIMITS = {10_000: {"discover": 5.0, "label plan": 1.0}}


RUNS = 3


def timed(work: Callable[[], Any]) -> tuple[Any, list[float]]:
    """The last result, and the CPU seconds of each run, the best first."""
    took = []
    for _ in range(RUNS):
        result = None  # two sites at once would only measure the memory
        before = time.process_time()
        result = work()
        took.append(round(time.process_time() - before, 2))
    return result, sorted(took)


def moved(site: Site) -> Site:
    """The site with NIC 0 of the second node plugged into the leaf of rail 0 of another rack."""
    node = site.nodes[1]
    other = next(leaf for leaf in site.leaves if leaf.rail == 0 and leaf.rack != node.rack)
    nics = (replace(node.nics[0], leaf=other.name), *node.nics[1:])
    return replace(site, nodes=tuple(replace(n, nics=nics) if n is node else n for n in site.nodes))


def label_plan(site: Site, current: dict[str, dict[str, str]]) -> LabelPlan:
    """The changes that the cluster needs to carry the site's labels."""
    table = shipped()
    return plan(labels_of(site, table.written()), current, Ours(table))


def measure(nodes: int) -> dict[str, Any]:
    """One row."""
    site = simulate(racks=-(-nodes // 18))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        size = 0
        for name, data in simulated(site):
            (folder / name).write_bytes(data)
            size += len(data)
        found: Discovered
        found, discovering = timed(lambda: discover(captures([folder]), readers()))
    findings, auditing = timed(lambda: audit(found))
    current = labels_of(found.site, shipped().written())
    same, planning = timed(lambda: label_plan(found.site, current))
    change, _ = timed(lambda: label_plan(moved(found.site), current))
    failed = [one for one in (*found.findings, *findings) if one.verdict is Verdict.FAIL]
    return {
        "nodes": len(found.site.nodes),
        "captures_mb": round(size / 1e6),
        "discover_s": discovering[0],
        "audit_s": auditing[0],
        "findings": len(failed),
        "label_plan_s": planning[0],
        "all_runs_s": {"discover": discovering, "audit": auditing, "label_plan": planning},
        "writes_without_change": len(same.changes),
        "one_cable": [f"{one.node}: {', '.join(key for key, _, _ in one.set)}" for one in change.changes],
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    """Measure, print the table, and end with 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, action="append")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load}"
    print(f"{date.today()}, {machine}; simulated captures; CPU seconds of one process, best of {RUNS}")
    print(f"{'nodes':>7} {'MB':>5} {'discover':>9} {'audit':>7} {'label plan':>10} {'writes':>6} {'peak MB':>8}")
    for nodes in given.nodes or [10_000, 25_000]:
        row = measure(nodes)
        rows.append(row)
        print(
            f"{row['nodes']:>7} {row['captures_mb']:>5} {row['discover_s']:>9} {row['audit_s']:>7}"
            f" {row['label_plan_s']:>10} {row['writes_without_change']:>6} {row['peak_rss_mb']:>8}"
        )
        print(f"        one cable moved changes: {'; '.join(row['one_cable'])}")
    if given.json:
        result = {"date": str(date.today()), "machine": machine, "command": " ".join(sys.argv), "rows": rows}
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    missed = [
        f"{nodes} nodes: {what} {row[key]} s, limit {limit} s"
        for nodes, limits in LIMITS.items()
        for row in rows
        if abs(row["nodes"] - nodes) < 20
        for what, limit in limits.items()
        if row[key := what.replace(" ", "_") + "_s"] > limit
    ]
    print("\n".join(missed) or "limits: discover 5 s and label plan 1 s at 10,000 nodes: met")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
