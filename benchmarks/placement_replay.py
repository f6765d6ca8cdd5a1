"""Traces replayed under all six placement rules: occupancy, domains spanned, waits and fragmentation, side by side.

    generated    gangs of NVL72 size on 24 racks of 18 trays, at several loads and in two mixes, each with no segments
                 and with those of NVIDIA's advice (16 trays from 128 GPUs, 4 from 32, else 1), required; two seeds
    large site   the same on 280 racks, 5,040 trays, one seed
    public       every trace in the corpus folder that lists jobs, as it is and with all sizes times 16, for hardly any
                 of their jobs needs more than one tray; on racks for 95 % of what it asks for, at its own times
    curve        occupancy against domains as the share of gangs grows whose segments are required
    full queue   preemptions and goodput under `placement.queue`, with node failures; small, for it decides often
    pairs        only when asked for: ours against per-level and first-fit on eight traces each, with standard errors

Beside the six runs ours once more, `ours-strict`, for which every gang that fits in one NVLink domain must sit in one
(a required segment): the other end of the trade between spans and waiting, where Slurm's rule stands too.

The bar, for every case: ours keeps GPUs as busy as first-fit, which is blind to the topology and ignores segments, to
within one percentage point, and spans no more NVLink domains a gang than the best of the five others; told apart are
the others that keep within that point themselves, for waiting makes it easy to span little. Occupancy counts
from the first submission to the last. Everything is the same every time but for the CPU time.

    python benchmarks/placement_replay.py [--only generated] [--seeds 2] [--json FILE]

Public traces are looked for in scheduling/ of RACKYARD_CORPUS (default ../shared/data). The exit code is 0 whatever the
verdict, which is printed for every case. Six to seven minutes of CPU.
"""

import argparse
import json
import math
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from rackyard.errors import UsageError
from rackyard.fabric import simulate as simulate_site
from rackyard.placement import Request
from rackyard.placement.columns import Columns
from rackyard.placement.decide import decide
from rackyard.placement.replay import (
    Metrics,
    Rules,
    Wanted,
    by_rate,
    fitted,
    measure,
    named,
    reach,
    simulate,
)
from rackyard.placement.traces import Generator, Trace, TraceJob, generate, load_of, read_trace
from rackyard.placement.yard import Decision, Yard

RACKS, BLOCK, TRAYS, SEEDS = 24, 8, 18, 2
BLIND, OURS = "first-fit", "rackyard"
LOADS = (0.8, 0.95, 1.1)
LONGEST = 6 * 3600.0
"""No run longer than this, so that the window holds most of the work: what can't be done in it is no rule's fault."""
LARGE = ((16, 0.3), (32, 0.25), (64, 0.2), (128, 0.15), (256, 0.1))
MIXES: dict[str, tuple[int, dict[str, Any]]] = {
    "mixed": (2500, {}),
    "large": (1200, {"sizes": LARGE}),
}
"""Jobs, and what differs from the generator's own sizes: half of those jobs have one GPU; of the large ones none."""
SCALE = 16
SHARES = (0.25, 0.5, 0.75)
"""The ends, 0 and 1, are cases of `generated`."""
FAIL_RATE, REPAIR = 0.065, 4 * 3600.0
"""Ten times the failures of Meta's RSC-1 (arXiv 2410.21680), so that a day on eight racks has some."""


@dataclass(frozen=True, slots=True)
class Case:
    """Some replays whose figures are averaged."""

    group: str
    name: str
    columns: Columns
    traces: tuple[Trace, ...]
    rules: Rules = field(default_factory=Rules)
    failures: float = 0.0


def site(racks: int, trays: int = TRAYS, block: int = BLOCK) -> Columns:
    """The columns of a simulated site."""
    return Columns.of(simulate_site(racks=racks, trays=trays, racks_per_block=block))


def made(racks: int, jobs: int, load: float, seed: int, **other: Any) -> Trace:
    """A generated trace; no gang larger than a quarter of the site."""
    gpus = racks * TRAYS * 4
    largest = min(2048, gpus // 4)
    return generate(Generator(seed, jobs, gpus, load, largest=largest, longest=LONGEST, **other))


def generated(seeds: int) -> Iterator[Case]:
    """Loads and mixes, with and without segments."""
    columns = site(RACKS)
    for mix, (jobs, other) in MIXES.items():
        for load in LOADS if mix == "mixed" else LOADS[1:2]:
            traces = tuple(made(RACKS, jobs, load, seed, **other) for seed in range(seeds))
            bare = tuple(thinned(trace, 0.0, 0) for trace in traces)
            yield Case("generated", f"{mix}, load {load}, segments none", columns, bare)
            yield Case("generated", f"{mix}, load {load}, segments required", columns, traces)


def large_site(seeds: int) -> Iterator[Case]:
    """As many trays as in NVIDIA's own simulation of block scheduling."""
    yield Case("large site", "280 racks, load 1.0, segments required", site(280), (made(280, 10_000, 1.0, 0),))


def public(seeds: int) -> Iterator[Case]:
    """The published traces that are at hand."""
    folder = Path(os.environ.get("RACKYARD_CORPUS", "../shared/data")) / "scheduling"
    if not folder.is_dir():
        print(f"public: skipped, there is no {folder.name} folder in the corpus")
    for file in sorted(folder.glob("*")):
        try:
            trace = read_trace(file.read_text(encoding="utf-8"), file.name)
        except UsageError as error:
            print(f"public: {file.name} skipped: {error.what}")
            continue
        for times in (1, SCALE):
            jobs = tuple(replace(job, gpus=job.gpus * times, gpus_per_node=None) for job in trace.jobs)
            yield sized(file.name, replace(trace, jobs=jobs), times)


def sized(name: str, trace: Trace, times: int) -> Case:
    """On racks for 95 % of what it asks for: at least four, of fewer trays if need be, in at least two blocks."""
    trays = math.ceil(trace.gpu_seconds / trace.window / 0.95 / 4)
    racks = max(4, math.ceil(trays / TRAYS))
    columns = site(racks, math.ceil(trays / racks), BLOCK if racks >= 2 * BLOCK else 2)
    made_to_fit = fitted(trace, columns, Wanted())
    gpus = int(columns.size.sum())
    load, share = load_of(made_to_fit, gpus), 100 * reach(made_to_fit)
    what = f"{name}{f' x {times}' if times > 1 else ''}: {racks} racks of {gpus // racks // 4}, load {load:.2f}"
    return Case("public", f"{what}, {share:.0f} % in the window", columns, (made_to_fit,))


def curve(seeds: int) -> Iterator[Case]:
    """The same gangs, of which more and more ask for their segments."""
    columns = site(RACKS)
    for share in SHARES:
        traces = tuple(thinned(made(RACKS, MIXES["mixed"][0], LOADS[1], seed), share, seed) for seed in range(seeds))
        yield Case("curve", f"segments required by {100 * share:.0f} %", columns, traces)


def thinned(trace: Trace, share: float, seed: int) -> Trace:
    """Segments taken off all but about that share of the gangs."""
    draw = random.Random(f"curve {seed}")

    def kept(job: TraceJob) -> TraceJob:
        return job if draw.random() < share else replace(job, segment_gpus=None)

    return replace(trace, jobs=tuple(map(kept, trace.jobs)))


def full_queue(seeds: int) -> Iterator[Case]:
    """A small site under our own queue."""
    name = f"8 racks, load 1.1, segments required, {FAIL_RATE} failures a node and day"
    yield Case("full queue", name, site(8, block=4), (made(8, 400, 1.1, 0),), Rules("full"), FAIL_RATE)


def strict(request: Request, yard: Yard) -> Decision | None:
    """Ours, with one NVLink domain required of every gang that fits in one."""
    columns = yard.columns
    whole = request.gpus_per_node is None and request.gpus <= columns.classes[0].size * int(columns.total.max())
    return decide(replace(request, segment_gpus=request.gpus, segment_required=True) if whole else request, yard)


STRICT = replace(named([OURS])[0], name="ours-strict", place=strict)


def pairs(seeds: int) -> Iterator[Case]:
    """One trace a case, four times as many as elsewhere: what of the differences is chance."""
    columns = site(RACKS)
    for share, what in ((0.0, "none"), (1.0, "required")):
        for seed in range(4 * seeds):
            trace = thinned(made(RACKS, MIXES["mixed"][0], LOADS[1], seed), share, seed)
            yield Case("pairs", f"mixed, load {LOADS[1]}, segments {what}, seed {seed}", columns, (trace,))


GROUPS: dict[str, tuple[Callable[[int], Iterator[Case]], tuple[str, ...]]] = {
    "generated": (generated, ()),
    "large site": (large_site, ()),
    "public": (public, ()),
    "curve": (curve, (OURS, BLIND, "tier-by-tier", "per-level")),
    "full queue": (full_queue, ()),
    "pairs": (pairs, (OURS, BLIND, "per-level")),
}
"""Cases, and the policies that run them; none: all."""
SHOWN = (
    ("occ %", "occupancy", 100, 2),
    ("domains", "domains", 1, 4),
    ("blocks", "blocks", 1, 4),
    ("wait s", "wait_mean", 1, 0),
    ("gangs' s", "gang_wait_mean", 1, 0),
    ("1 dom %", "domain_share", 100, 1),
    ("16s %", "segment_share", 100, 1),
    ("split", "split", 1, 0),
)
OF_QUEUE = (
    ("preempt", "preemptions", 1, 0),
    ("cut GPUh", "cut", 1, 1),
    ("hit", "faults", 1, 0),
    ("lost GPUh", "lost", 1, 1),
    ("goodput %", "goodput", 100, 2),
)


def mean(found: Sequence[Metrics]) -> dict[str, Any]:
    """Figures averaged over the replays of a case; None where one has none."""
    rows = [asdict(each) for each in found]
    return {
        name: None if any(row[name] is None for row in rows) else statistics.fmean(row[name] for row in rows)
        for name in rows[0]
        if name != "policy" and not name.startswith("decision_")  # times say nothing here
    }


def run(case: Case, names: Sequence[str]) -> dict[str, Any]:
    """All policies on one case, and the verdict."""
    figures = {}
    for policy in (*named(names), STRICT):
        found = []
        for trace in case.traces:
            failures = by_rate(len(case.columns.names), case.failures, REPAIR, 0)
            found.append(measure(simulate(trace.jobs, case.columns, policy, case.rules, failures)))
        figures[policy.name] = mean(found)
    return {"group": case.group, "case": case.name, "figures": figures, "verdict": verdict(figures)}


_OF_US = (OURS, STRICT.name)


def verdict(figures: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The bar, for ours and for ours-strict: points of occupancy against the blind rule, and domains a gang beyond the
    fewest of the others, and of those that are within a point of the blind rule themselves.
    """
    points = {name: _points(one, figures[BLIND]) for name, one in figures.items()}
    others = {name: one["domains"] for name, one in figures.items() if name not in _OF_US and one["domains"]}
    busy = {name: domains for name, domains in others.items() if points[name] >= -1.0}
    told: dict[str, Any] = {}
    for name in _OF_US:
        told[name] = {"points": points[name], "occupancy_met": points[name] >= -1.0}
        for what, those in (("others", others), ("busy_others", busy)):
            best = min(those, key=lambda each: those[each], default=None)
            more = 0.0 if best is None else figures[name]["domains"] - those[best]
            told[name][what] = {"best": best, "domains_more": more, "met": more <= 1e-9}
    return told


def _points(one: dict[str, Any], blind: dict[str, Any]) -> float:
    return 0.0 if one["occupancy"] is None else 100 * float(one["occupancy"] - blind["occupancy"])


def paired(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Differences on the same trace, their mean and its standard error."""
    for what in ("none", "required"):
        cases = [row["figures"] for row in rows if row["group"] == "pairs" and f"segments {what}" in row["case"]]
        for name in _OF_US if len(cases) > 1 else ():
            for figure, other, times in (
                ("domains", "per-level", 1),
                ("blocks", "per-level", 1),
                ("occupancy", BLIND, 100),
            ):
                found = [times * (case[name][figure] - case[other][figure]) for case in cases]
                error = statistics.stdev(found) / math.sqrt(len(found))
                told = f"{figure} {statistics.fmean(found):+.4f} ± {error:.4f}"
                yield f"pairs, segments {what}, {len(found)} traces: {name} less {other}: {told}"


def show(row: dict[str, Any]) -> None:
    """One case as a table."""
    columns = SHOWN + (OF_QUEUE if row["group"] == "full queue" else ())
    print(f"\n{row['group']}: {row['case']}")
    print(f"  {'policy':<13}" + "".join(f"{title:>10}" for title, *_ in columns) + f"{'vs blind':>10}")
    blind = row["figures"][BLIND]["occupancy"]
    for name, one in row["figures"].items():
        cells = ["-" if one[key] is None else f"{one[key] * scale:.{digits}f}" for _, key, scale, digits in columns]
        points = "-" if blind is None else f"{100 * (one['occupancy'] - blind):+.2f}"
        print(f"  {name:<13}" + "".join(f"{cell:>10}" for cell in (*cells, points)))
    ours = row["figures"][OURS]
    least = ", ".join(f"{ours[key]:.4f} {what}" for key, what in _LEAST if ours[key] is not None)
    print(f"  the least on the empty site: {least or 'no gang has more than one node'}")
    for name, told in row["verdict"].items():
        cells = [f"occupancy {'met' if told['occupancy_met'] else 'missed'} ({told['points']:+.2f})"]
        for what, those in (("others", "all others"), ("busy_others", "others within a point")):
            best = told[what]
            cells.append(f"domains against {those} {_MET[best['met']]} ({best['domains_more']:+.4f}, {best['best']})")
        print(f"  bar, {name}: {'; '.join(cells)}")


_MET = {True: "met", False: "missed"}
_LEAST = (("domains_least", "domains"), ("blocks_least", "blocks"))


def main() -> None:
    """Run the groups, print the tables, keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=GROUPS, help="may be repeated; default: all but pairs")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="traces a generated case, of which figures are means")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(f"{date.today()}, {machine}; simulated sites, {BLOCK} racks a block where not said otherwise")
    began, rows = time.process_time(), []
    for group in given.only or [name for name in GROUPS if name != "pairs"]:
        cases, names = GROUPS[group]
        for case in cases(given.seeds):
            before = time.process_time()
            rows.append({**run(case, names), "cpu_s": round(time.process_time() - before, 1)})
            show(rows[-1])
            sys.stdout.flush()
    for line in paired(rows):
        print(line)
    spent = round(time.process_time() - began)
    print(f"\n{spent} s of CPU")
    if given.json:
        about = {"date": str(date.today()), "machine": machine, "command": " ".join(sys.argv), "cpu_s": spent}
        given.json.write_text(json.dumps({**about, "pairs": list(paired(rows)), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
