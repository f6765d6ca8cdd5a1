"""Small sites with some nodes in use, and what a decision took of them."""

from collections.abc import Sequence

from rackyard.fabric import simulate
from rackyard.placement.columns import Columns
from rackyard.placement.yard import Decision, Yard


def yard_of(free: Sequence[int], trays: int = 18, racks_per_block: int = 0) -> Yard:
    """A yard of racks, the first of them with `free[0]` idle trays (its first ones), and so on."""
    columns = Columns.of(simulate(racks=len(free), trays=trays, racks_per_block=racks_per_block))
    yard = Yard.on(columns)
    for rack, count in enumerate(free):
        used = slice(rack * trays + count, (rack + 1) * trays)
        yard.busy[used] = columns.all[used]
    return yard


def by_rack(decision: Decision | None, yard: Yard) -> list[int] | None:
    """Nodes taken in each rack."""
    if decision is None:
        return None
    pools = yard.columns.pool[decision.nodes].tolist()
    return [pools.count(pool) for pool in range(len(yard.columns.total))]
