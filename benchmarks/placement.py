"""How long one decision takes, on simulated sites of 2,500, 25,000 and 100,000 nodes that are in use in part.

A site is NVL72 racks of 18 trays in blocks of 8 racks. Gangs of many sizes hold 40 % of it, in other places for each
decision, and every policy decides on the same yards: Rackyard's engine, the same with the reasons for every rack, and
the rules of docs/replay.md, each in CPU milliseconds of this one process. Every rack is looked at; what is made once a
site (`Columns.of`) is timed apart. Memory is what the process holds more once a site and its columns are there.

    1,024 nodes          4,096 GPUs, no segments                          goal p50 3 / 5 / 15 ms, p99 10 ms at 25,000
    1,024 in 16s         the same in 64 segments of 16 nodes, required
    1,024 with a plan    the same with tp 16, pp 8 weighed                not in the goal
    1 node, 1 GPU                                                         goal p50 1 ms at 25,000

    python benchmarks/placement.py [--nodes 2500 --nodes 25000 ...] [--count 200] [--json FILE]

Exit code 1 when a goal is missed.
"""

import argparse
import gc
import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from rackyard.fabric import simulate
from rackyard.placement import Occupancy, Parallel, Placement, Request, Yard, place_on
from rackyard.placement.columns import Columns
from rackyard.placement.replay import POLICIES, Policy, bench
from rackyard.placement.yard import Decision

SHARE = 0.4
GANGS: Mapping[str, Request] = {
    "1,024 nodes": Request(4096),
    "1,024 in 16s": Request(4096, segment_gpus=64),
    "1,024 with a plan": Request(4096, parallel=Parallel(tp=16, pp=8, pp_weight=4)),
    "1 node": Request(4),
    "1 GPU": Request(1),
}
GOALS = {
    (2_500, "1,024 nodes"): (3.0, None),
    (2_500, "1,024 in 16s"): (3.0, None),
    (25_000, "1,024 nodes"): (5.0, 10.0),
    (25_000, "1,024 in 16s"): (5.0, 10.0),
    (25_000, "1 node"): (1.0, None),
    (100_000, "1,024 nodes"): (15.0, None),
    (100_000, "1,024 in 16s"): (15.0, None),
}
"""p50 and p99 of the engine, in ms."""


def reasoned(request: Request, yard: Yard) -> Decision | None:
    """`place_on`, for its time alone."""
    answer = place_on(request, yard, Occupancy())
    return _SEATED if isinstance(answer, Placement) else None


_SEATED = Decision.__new__(Decision)
OURS = POLICIES[0]
REASONED = Policy("with reasons", "the engine, and why each rack", "kept", "docs/placement.md", reasoned)


def resident() -> float:
    """MB of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(nodes: int, count: int) -> dict[str, Any]:
    """The rows of one site."""
    held = resident()
    site = simulate(racks=-(-nodes // 18), racks_per_block=8)
    of_site = resident() - held
    began = time.process_time()
    columns = Columns.of(site)
    made = time.process_time() - began
    of_columns = resident() - held - of_site
    rows = [
        {"gang": gang, "policy": policy.name, **asdict(bench(columns, policy, request, count, SHARE))}
        for gang, request in GANGS.items()
        for policy in (OURS, REASONED, *POLICIES[1:])
    ]
    return {
        "nodes": len(columns.names),
        "racks": len(site.racks),
        "columns_s": round(made, 3),
        "site_mb": round(of_site),
        "columns_mb": round(of_columns),
        "peak_mb": round(resident()),
        "rows": rows,
    }


def show(site: Mapping[str, Any]) -> None:
    """Print one site."""
    print(
        f"\n{site['nodes']:,} nodes in {site['racks']:,} racks: columns made once in {site['columns_s']} s;"
        f" memory: site {site['site_mb']} MB, columns {site['columns_mb']} MB, process {site['peak_mb']} MB"
    )
    print(f"{'gang':<18} {'policy':<14} {'placed':>10} {'p50 ms':>8} {'p99 ms':>8}")
    for row in site["rows"]:
        placed = f"{row['placed']}/{row['count']}"
        print(f"{row['gang']:<18} {row['policy']:<14} {placed:>10} {row['p50']:>8.2f} {row['p99']:>8.2f}")


def missed(site: Mapping[str, Any]) -> list[str]:
    """The goals that the engine missed there."""
    found = []
    for (nodes, gang), limits in GOALS.items():
        for row in site["rows"]:
            if abs(site["nodes"] - nodes) < 20 and row["gang"] == gang and row["policy"] == OURS.name:
                found += [
                    f"{nodes:,} nodes, {gang}: {name} {row[name]:.2f} ms, goal {limit} ms"
                    for name, limit in zip(("p50", "p99"), limits, strict=True)
                    if limit is not None and row[name] > limit
                ]
    return found


def main() -> None:
    """Measure, print the tables, and end with 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, action="append")
    parser.add_argument("--count", type=int, default=200, help="decisions of each kind; half of it at 100,000 nodes")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load}"
    print(f"{date.today()}, {machine}; simulated sites, {SHARE:.0%} in use; CPU milliseconds a decision")
    sites = []
    for nodes in given.nodes or [2_500, 25_000, 100_000]:
        sites.append(measure(nodes, given.count if nodes < 100_000 else max(1, given.count // 2)))
        show(sites[-1])
    if given.json:
        about = {"date": str(date.today()), "machine": machine, "command": " ".join(sys.argv), "share_in_use": SHARE}
        given.json.write_text(json.dumps({**about, "sites": sites}, indent=1) + "\n")
    failed = [text for site in sites for text in missed(site)]
    print("\n" + ("\n".join(f"missed: {text}" for text in failed) or "goals: met"))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
