"""Planning a queue of 10,000 waiting gangs on a site of 25,000 nodes.

A simulated site of NVL72 racks, eight a block, is filled with gangs of 1 to 1,024 nodes (those of 32 and more in
segments of 16 nodes, some of the small ones on part of a node) and then thinned to nine tenths at random, which leaves
the holes that a site in use has. Twelve teams share it, three of which borrow; priorities are 0 to 3, one gang in ten
may not be preempted, three in ten have no estimate, three in four have had checkpoints. The gangs that wait are of the
same mix. A seed says everything.

    alike      sizes and forms as they come: many gangs ask for the same
    different  every gang also excludes a node of its own, so that no answer serves for two

Measured in CPU seconds of this one process: the first plan of a controller that knows nothing yet, and then replans,
each after the plan before was acted on (starts, preemptions), one gang has ended and one has arrived. `trials` are
decisions made in a replan.

    python benchmarks/placement_queue.py [--racks 1389] [--waiting 10000] [--replans 15] [--seed 0] [--json FILE]

Exit code 1 when a replan takes more than 2 s with 10,000 gangs or fewer.
"""

import argparse
import json
import os
import platform
import random
import statistics
import sys
import time
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

from rackyard.fabric import simulate
from rackyard.placement.columns import Columns
from rackyard.placement.decide import decide
from rackyard.placement.model import Request
from rackyard.placement.queue import Gang, QueuePlan, QueueState, Reservation, Running, Team, plan, requeued
from rackyard.placement.yard import Yard

LIMIT = 2.0
LIMIT_GANGS = 10_000
HOUR = 3600.0
NOW = 7 * 24 * HOUR
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Nodes."""
WEIGHTS = (380, 160, 150, 120, 100, 45, 22, 12, 6, 3, 2)
PARTS = (1, 2)
"""GPUs of gangs smaller than a node."""
FULL = 0.9
TEAMS = 12


@dataclass
class Yards:
    """The site and its queue, acted on as a controller would."""

    yard: Yard
    draw: random.Random
    alike: bool
    now: float = NOW
    made: int = 0
    teams: tuple[Team, ...] = ()
    waiting: dict[str, Gang] = field(default_factory=dict)
    running: dict[str, Running] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()

    def gang(self, submitted: float) -> Gang:
        """One more."""
        draw, nodes = self.draw, self.yard.columns.names
        self.made += 1
        part = draw.random() < 0.05
        size = draw.choices(SIZES, WEIGHTS)[0]
        gpus = draw.choice(PARTS) if part else 4 * size
        exclude = frozenset() if self.alike else frozenset({nodes[self.made % len(nodes)]})
        request = Request(gpus, segment_gpus=64 if gpus > 64 else None, exclude=exclude)
        estimate = None if draw.random() < 0.3 else draw.lognormvariate(0, 1.2) * 6 * HOUR
        return Gang(
            f"g{self.made:06d}",
            request,
            f"team{draw.randrange(TEAMS):02d}",
            draw.choices((0, 1, 2, 3), (50, 30, 15, 5))[0],
            submitted,
            estimate,
            preemptible=draw.random() < 0.9,
        )

    def fill(self) -> None:
        """Gangs until the site is full, then fewer of them."""
        columns, busy = self.yard.columns, 0
        misses = 0
        while busy < 0.99 * int(columns.size.sum()) and misses < 200:
            gang = self.gang(0.0)
            decision = decide(gang.request, self.yard)
            if decision is None:
                misses += 1
                continue
            self.yard.take(decision)
            busy += gang.gpus
            started = self.now - self.draw.uniform(0, 24 * HOUR)
            saved = None if self.draw.random() < 0.25 else self.draw.uniform(max(started, self.now - HOUR), self.now)
            self.running[gang.name] = Running(gang, decision, started, saved)
        names = list(self.running)
        self.draw.shuffle(names)
        while busy > FULL * int(columns.size.sum()):
            busy -= self.end(names.pop()).gang.gpus
        own = int(columns.size.sum()) // (TEAMS - 3)
        self.teams = tuple(Team(f"team{n:02d}", own if n < TEAMS - 3 else 0, None, 1 + n % 3) for n in range(TEAMS))

    def end(self, name: str) -> Running:
        """It is gone."""
        run = self.running.pop(name)
        self.yard.give(run.decision)
        return run

    def state(self) -> QueueState:
        """What a plan sees."""
        return QueueState(tuple(self.waiting.values()), tuple(self.running.values()), self.teams, self.reservations)

    def act(self, made: QueuePlan) -> None:
        """Start what it starts, stop what it stops: who was told before is gone now."""
        for name in [name for name, run in self.running.items() if run.stopping]:
            gang = requeued(self.end(name), self.now)
            self.waiting[gang.name] = gang
        for start in made.starts:
            self.yard.take(start.decision)
            self.running[start.gang] = Running(self.waiting.pop(start.gang), start.decision, self.now)
        for preemption in made.preemptions:
            for name in preemption.victims:
                self.running[name] = replace(self.running[name], stopping=True)
        self.reservations = made.reservations

    def next(self) -> None:
        """Some seconds later: one gang has ended, and one arrives."""
        self.now += 20.0
        self.end(self.draw.choice([name for name, run in self.running.items() if not run.stopping]))
        gang = self.gang(self.now)
        self.waiting[gang.name] = gang


def timed(here: Yards) -> tuple[QueuePlan, float]:
    """A plan, and its CPU seconds; what the controller has anyway, the state, is not timed."""
    state = here.state()
    before = time.process_time()
    made = plan(here.now, state, here.yard)
    return made, time.process_time() - before


def measure(columns: Columns, waiting: int, replans: int, seed: int, alike: bool) -> dict[str, Any]:
    """One row."""
    here = Yards(Yard.on(columns), random.Random(seed), alike)
    here.fill()
    running, free = len(here.running), 1 - int(here.yard.busy.astype(bool).sum()) / len(columns.names)
    for _ in range(waiting):
        gang = here.gang(here.now - here.draw.uniform(0, 48 * HOUR))
        here.waiting[gang.name] = gang
    first, took = timed(here)
    here.act(first)
    plans, times = [], []
    for _ in range(replans):
        here.next()
        made, seconds = timed(here)
        here.act(made)
        plans.append(made)
        times.append(round(seconds, 3))
    kinds = sorted({reason.kind for reason in plans[-1].reasons.values()})
    return {
        "queue": "alike" if alike else "different",
        "waiting": waiting,
        "running": running,
        "free_nodes": round(free, 3),
        "first_s": round(took, 2),
        "first_starts": len(first.starts),
        "first_preemptions": len(first.preemptions),
        "first_trials": first.trials,
        "replan_p50_s": round(statistics.median(times), 2),
        "replan_worst_s": round(max(times), 2),
        "replans_s": times,
        "trials": [made.trials for made in plans],
        "starts": [len(made.starts) for made in plans],
        "preemptions": [len(made.preemptions) for made in plans],
        "last_reasons": {kind: sum(why.kind == kind for why in plans[-1].reasons.values()) for kind in kinds},
    }


def main() -> None:
    """Measure, print the table, and end with 1 when the limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--racks", type=int, default=1389)
    parser.add_argument("--waiting", type=int, action="append")
    parser.add_argument("--replans", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load}"
    columns = Columns.of(simulate(racks=given.racks, racks_per_block=8))
    nodes = len(columns.names)
    print(f"{date.today()}, {machine}; {nodes} simulated nodes; CPU seconds of one process")
    print(
        f"{'queue':>10} {'waiting':>8} {'running':>8} {'free':>6} {'first':>6} {'starts':>7} {'preempts':>9}"
        f" {'replan p50':>11} {'worst':>6} {'trials':>7}"
    )
    rows = []
    for waiting in given.waiting or [LIMIT_GANGS]:
        for alike in (True, False):
            row = measure(columns, waiting, given.replans, given.seed, alike)
            rows.append(row)
            print(
                f"{row['queue']:>10} {waiting:>8} {row['running']:>8} {row['free_nodes']:>6.1%} {row['first_s']:>6}"
                f" {row['first_starts']:>7} {row['first_preemptions']:>9} {row['replan_p50_s']:>11}"
                f" {row['replan_worst_s']:>6} {statistics.median(row['trials']):>7.0f}",
                flush=True,
            )
    if given.json:
        command = " ".join(["python", "benchmarks/placement_queue.py", *sys.argv[1:]])
        result = {"date": str(date.today()), "machine": machine, "command": command, "nodes": nodes, "rows": rows}
        given.json.write_text(json.dumps(result, indent=1) + "\n")
    missed = [row for row in rows if row["waiting"] <= LIMIT_GANGS and row["replan_worst_s"] > LIMIT]
    for row in missed:
        print(f"{row['queue']}, {row['waiting']} waiting: a replan took {row['replan_worst_s']} s, limit {LIMIT} s")
    if not missed:
        print(f"limit: {LIMIT:.0f} s for a replan of {LIMIT_GANGS} waiting gangs: met")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
