"""How long decisions take: one policy, one gang, on yards in use in part."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rackyard.placement.columns import Columns
from rackyard.placement.model import Request
from rackyard.placement.replay.policies import Policy
from rackyard.placement.yard import Yard

_FILLERS = (1, 4, 16, 16, 32, 72, 128)
"""GPUs of the gangs that fill the yard."""


@dataclass(frozen=True, slots=True)
class Timing:
    """CPU milliseconds of so many decisions; `placed` of them found seats."""

    count: int
    placed: int
    p50: float
    p99: float


def in_use(columns: Columns, seed: int, share: float) -> Yard:
    """A yard on which about that share of the nodes is in use, in pieces of many sizes: the other gangs have ended."""
    draw = random.Random(seed)
    yard = Yard.on(columns)
    idle = np.arange(len(columns.names))
    while len(idle):
        nodes, idle = np.split(idle, [max(1, draw.choice(_FILLERS) // int(columns.size[idle[0]]))])
        if draw.random() < share:
            yard.busy[nodes] = columns.all[nodes]
    return yard


def bench(
    columns: Columns,
    policy: Policy,
    request: Request,
    count: int,
    share: float = 0.5,
    clock: Callable[[], float] = time.process_time,
) -> Timing:
    """Time `count` decisions, each on another yard, of which `share` is in use; the same yards for every policy."""
    seconds: list[float] = []
    placed = 0
    policy.place(request, Yard.on(columns))  # what is made once a site is not part of a decision
    for seed in range(count):
        yard = in_use(columns, seed, share)
        began = clock()
        placed += policy.place(request, yard) is not None
        seconds.append(clock() - began)
    spent = np.array(seconds) * 1e3
    return Timing(count, placed, float(np.percentile(spent, 50)), float(np.percentile(spent, 99)))
