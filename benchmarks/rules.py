"""How often the restated rules of Volcano and Kueue do what the schedulers themselves do, on small random sites.

Each case is a site of 2 to 5 racks of 2 to 6 trays in blocks, some nodes in use, and 2 to 4 gangs one after the other
(`testbed/rules/`). Every gang is put before the real scheduler and before the rule as the placement replay restates it,
both on the yard that the scheduler's earlier placements left.

    admitted alike     both admit the gang, or neither
    domains, blocks    as many of them spanned, of the gangs that both placed; ties by the order of the fabric
    same domains       as many of the gang's nodes in each domain
    same nodes         the very same nodes
    possible           of all gangs: the same domains in one order of what is alike to the rule, or neither admits it
    domains a gang     of the scheduler, of the rule, and of the rule in the mean over all orders of the domains

    python -m benchmarks.rules [--cases 100] [--first 0] [--only volcano] [--json benchmarks/results/rules.json]

Needs the test bed (make testbed). Exit code 1 when a gang was admitted by one of the two only, or was not possible.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from testbed import cluster
from testbed.rules import draw, kueue, volcano
from testbed.rules.compare import shares, verdicts

SCHEDULERS = {"volcano": volcano, "kueue": kueue}
SHOWN = ("gangs", "admitted alike", "placed by both", "domains", "blocks", "same domains", "same nodes", "possible")
MEANS = ("domains a gang", "of the rule", "of the rule, any order")
BATCH = 50
"""Cases in a cluster at once."""


def ask(name: str, seeds: range) -> dict[str, dict[str, float]]:
    """The shares of one scheduler."""
    found = []
    for start in range(0, len(seeds), BATCH):
        cases = draw(name, seeds[start : start + BATCH])
        with (
            tempfile.TemporaryDirectory() as scratch,
            cluster(Path(scratch) / "cluster", parts=("kwok", name), options=SCHEDULERS[name].OPTIONS) as bed,
        ):
            found += verdicts(cases, SCHEDULERS[name].ask_all(bed, cases))
    return shares(found)


def show(name: str, rows: dict[str, dict[str, float]]) -> None:
    """The table of one scheduler."""
    print(f"{name:<12}" + "".join(f"{title:>16}" for title in SHOWN) + "   domains a gang: real, rule, any order")
    for mode, row in rows.items():
        counts = "".join(f"{row[title]:>16.0f}" for title in SHOWN)
        print(f"{mode:<12}{counts}   " + ", ".join(f"{row[title]:.3f}" for title in MEANS))


def main() -> None:
    """Ask, print the tables, and end with 1 when a rule does what its scheduler can't have done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="The first seed.")
    parser.add_argument("--only", choices=SCHEDULERS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    seeds = range(given.first, given.first + given.cases)
    print(f"{date.today()}, {machine}; {len(seeds)} cases each, seeds from {given.first}")
    found: dict[str, Any] = {}
    for name in [given.only] if given.only else SCHEDULERS:
        found[name] = ask(name, seeds)
        show(name, found[name])
    if given.json:
        command = "python -m benchmarks.rules " + " ".join(sys.argv[1:])
        result = {"date": str(date.today()), "machine": machine, "command": command, "shares": found}
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    rows = [rows["all"] for rows in found.values()]
    sys.exit(any(min(row["admitted alike"], row["possible"]) < row["gangs"] for row in rows))


if __name__ == "__main__":
    main()
