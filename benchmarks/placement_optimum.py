"""Placement against the exact optimum: random small sites and gangs, each also solved by CP-SAT, term by term.

An instance is a site of 2–12 NVL72 racks of 4–18 trays with loads, cordons, weak NVLink and worn nodes, and a gang with
or without segments, groups, a parallel plan, pins, copies or a number of racks; a seed says everything about it
(tests/placement/instances.py). The oracle (tests/placement/oracle.py) may put any unit into any domain and proves each
term of the cost in turn. What it can't prove within its time is counted apart. The gap of an instance is that of the
first term that differs, (ours - optimum) / max(1, optimum), and 0 where none does; instances that fit nowhere are in
neither figure.

    python benchmarks/placement_optimum.py [--instances 400] [--seed 0] [--json FILE]

Exit code 1 when fewer than 95 % are equal, the mean gap is above 1 %, the engine refuses what fits, is better than a
proven optimum, or reports a cost that its placement doesn't have.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "placement"))

from against import NAMES, Verdict, judge
from instances import KINDS

EQUAL_BAR = 0.95
GAP_BAR = 0.01
COUNTED = ("equal", "worse", "refused", "better", "neither", "unproven")
DOMAINS = NAMES.index("domains")


def row(kind: str, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """One line of the table. `decided` are the instances that fit and whose optimum is proven; `several` those of them
    that need more than one NVLink domain, where there is most to decide.
    """
    counts = Counter(verdict.outcome for verdict in verdicts)
    decided = [verdict for verdict in verdicts if verdict.outcome in ("equal", "worse", "refused", "better")]
    several = [verdict for verdict in decided if verdict.best.cost and verdict.best.cost[DOMAINS] > 1]
    return {
        "kind": kind,
        "instances": len(verdicts),
        **{outcome: counts[outcome] for outcome in COUNTED},
        "decided": len(decided),
        "equal_share": _share(decided),
        "several": len(several),
        "several_equal_share": _share(several),
        "mean_gap": statistics.fmean(verdict.gap for verdict in decided) if decided else None,
    }


def _share(verdicts: Sequence[Verdict]) -> float | None:
    return sum(verdict.outcome == "equal" for verdict in verdicts) / len(verdicts) if verdicts else None


def line(cells: dict[str, Any]) -> str:
    """A row as printed."""
    shares = [
        "-" if cells[key] is None else f"{100 * cells[key]:.1f} %" for key in ("equal_share", "several_equal_share")
    ]
    gap = "-" if cells["mean_gap"] is None else f"{100 * cells['mean_gap']:.2f} %"
    numbers = "".join(f"{cells[outcome]:>9}" for outcome in COUNTED)
    return (
        f"{cells['kind']:<20}{cells['instances']:>6}{numbers}{shares[0]:>9}{cells['several']:>9}{shares[1]:>9}{gap:>9}"
    )


def different(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """What is to be looked at, by seed."""
    return [
        {
            "seed": verdict.instance.seed,
            "kind": verdict.instance.kind,
            "outcome": verdict.outcome,
            "term": NAMES[verdict.term] if verdict.term >= 0 else None,
            "ours": verdict.ours,
            "oracle": verdict.best.cost,
            "proven_terms": verdict.best.proven,
        }
        for verdict in verdicts
        if verdict.outcome not in ("equal", "neither")
    ]


def missed(total: dict[str, Any], verdicts: Sequence[Verdict]) -> list[str]:
    """The bars that were not met."""
    wrong = [verdict.instance.seed for verdict in verdicts if verdict.ours != verdict.again]
    said = [
        (total["decided"] == 0 or total["equal_share"] < EQUAL_BAR, f"fewer than {EQUAL_BAR:.0%} equal"),
        (total["mean_gap"] is not None and total["mean_gap"] > GAP_BAR, f"mean gap above {GAP_BAR:.0%}"),
        (total["refused"] > 0, f"{total['refused']} refused that fit"),
        (total["better"] > 0, f"{total['better']} better than the optimum: one of the two is wrong"),
        (bool(wrong), f"cost reported is not the placement's: seeds {wrong}"),
    ]
    return [text for failed, text in said if failed]


def main() -> None:
    """Measure, print the table, and end with 1 when a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0, help="of the first instance; the others follow")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    machine += f", OR-tools {version('ortools')}"
    began = time.process_time()
    verdicts = [judge(seed) for seed in range(given.seed, given.seed + given.instances)]
    took = round(time.process_time() - began)
    print(f"{date.today()}, {machine}; seeds {given.seed} to {given.seed + given.instances - 1}; {took} s of CPU")
    heads = "".join(f"{outcome:>9}" for outcome in COUNTED)
    print(f"{'kind':<20}{'inst.':>6}{heads}{'equal':>9}{'>1 dom.':>9}{'equal':>9}{'gap':>9}")
    kinds = [*(name for name, _ in KINDS), "mixed"]
    rows = [row(kind, [verdict for verdict in verdicts if verdict.instance.kind == kind]) for kind in kinds]
    total = row("all", verdicts)
    print("\n".join(line(cells) for cells in (*rows, total)))
    terms = Counter(NAMES[verdict.term] for verdict in verdicts if verdict.outcome == "worse")
    print(
        "first term that is worse: " + (", ".join(f"{name} {terms[name]}" for name in NAMES if terms[name]) or "none")
    )
    failed = missed(total, verdicts)
    if given.json:
        about = {"date": str(date.today()), "command": " ".join(sys.argv), "machine": machine, "cpu_s": took}
        results = {"rows": [*rows, total], "first_worse_term": dict(terms), "different": different(verdicts)}
        given.json.write_text(json.dumps({**about, **results}, indent=1) + "\n")
    print("\n".join(f"missed: {text}" for text in failed) or "bars: at least 95 % equal, mean gap at most 1 %: met")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
