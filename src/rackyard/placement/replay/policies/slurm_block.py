"""Slurm's topology/block: the smallest row of blocks that can hold the job, and of those the fullest."""

from collections import Counter

import numpy as np

from rackyard.placement.columns import Ints
from rackyard.placement.model import Request
from rackyard.placement.replay.policies.room import Positions, Room, rooms
from rackyard.placement.yard import Decision, Yard


def slurm_block(request: Request, yard: Yard) -> Decision | None:
    """Blocks are NVLink domains (servers that are their own domain: those of one rack), `BlockSizes` the base size and
    all its power-of-two multiples.

    The job's size names the block size: the smallest that is no smaller than the job. Rows of so many neighbouring
    blocks are looked at, each at its fixed place, and the one with the fewest sufficient free nodes is taken; the job
    waits where no row has room, even if two rows together had. Inside the row the block that is tightest for the rest
    of the job is used, else the one with most free nodes. A required segment is `--segment`: each is placed by itself
    by that rule. One that is larger than the base size may be cut, since its row has several blocks. `--segment` knows
    no preference, so a segment that is not required is not asked for.

    Sources: https://slurm.schedmd.com/topology.html, https://slurm.schedmd.com/topology.conf.html and
    https://github.com/SchedMD/slurm (src/plugins/topology/block/eval_nodes_block.c, 284c3b9). Node weights, and
    `--spread-segments` and `--consolidate-segments`, which a job has to ask for, are left out. So is what it does where
    a job is larger than every row and has the whole site: it fills up the half-size row it began in before the other.
    """
    for room in rooms(request, yard):
        unit = room.shape.unit if request.segment_required and room.shape.segment else room.shape.nodes
        nodes = _job(room, unit)
        if nodes is not None:
            return room.seats(nodes)
    return None


def _job(room: Room, unit: int) -> Positions | None:
    free = room.counts().astype(np.int64)
    rows = _rows(room.ground.total, unit)
    taken = np.zeros_like(free)
    for _ in range(room.shape.nodes // unit):
        blocks = _segment(free - taken, rows, unit)
        if blocks is None:
            return None
        for block, count in blocks:
            taken[block] += count
    parts = [room.of_pool(block)[: int(taken[block])] for block in np.flatnonzero(taken).tolist()]
    return np.concatenate(parts)  # slurmctld numbers tasks in node order


def _rows(total: Ints, nodes: int) -> Ints:
    """The row of each block: aligned runs of 1, 2, 4, … blocks; all of them where no such size is large enough."""
    most = int(total.max())
    sizes = Counter(int(size) for size in total.tolist() if 2 * int(size) >= most)
    base = max(sizes, key=lambda size: (sizes[size], size))
    times = 1
    while times * base < nodes:
        times *= 2
    blocks = np.arange(len(total), dtype=np.int32)
    return blocks // np.int32(times) if times <= len(total) else np.zeros_like(blocks)


def _segment(free: Positions, rows: Ints, need: int) -> list[tuple[int, int]] | None:
    """Blocks and nodes of each for one segment, or for a job without; the last one wins a tie, as in the source."""
    in_row = np.bincount(rows, free).astype(np.int64)
    enough = np.flatnonzero(in_row >= need)
    if not len(enough):
        return None
    row = enough[len(enough) - 1 - int(np.argmin(in_row[enough][::-1]))]
    left = {int(block): int(free[block]) for block in np.flatnonzero(rows == row)}
    taken: list[tuple[int, int]] = []
    while need:
        fitting = [block for block in left if left[block] >= need]
        if fitting:
            block = min(fitting, key=lambda one: (left[one], -one))
        else:
            block = max(left, key=lambda one: (left[one], one))
        count = min(need, left.pop(block))
        if count:
            taken.append((block, count))
        need -= count
    return taken
