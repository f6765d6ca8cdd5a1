"""Slurm's topology/block: `BlockName=… Nodes=…` and `BlockSizes=` (topology.conf(5)), and the choice of the base
block size.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rackyard.errors import UsageError
from rackyard.fabric.model import Site
from rackyard.fabric.tiers import DOMAIN, Group, largest
from rackyard.fabric.writers.names import Names, node_list, slurm
from rackyard.fabric.writers.slurm_tree import renamed

MAX_TIMES = 1 << 15
"""The largest block size over the base one: Slurm knows 16 levels (block_record.h)."""

_HEADER = """\
# Slurm topology/block, written by rackyard: TopologyPlugin=topology/block
#
# A block is an NVLink domain; nodes that are a domain by themselves are in blocks of one leaf group each. Slurm joins
# blocks that stand next to each other here, two, four, eight at a time.
#
# BlockSizes begins with the base block size. It is the size that most blocks have, not that of the smallest one:
# Slurm counts blocks for a job in units of it, so that with a base of 17 a segment of 18 nodes would count as two
# racks and could be cut in two. In a block that is smaller than the base, jobs up to its own size still run.
"""


@dataclass(frozen=True, slots=True)
class Block:
    """A block: its name in the file, its name on the site, its nodes in order."""

    name: str
    real: str
    nodes: tuple[str, ...]


def write(site: Site, base: int | None = None) -> str:
    """topology.conf of the site with `base` as base block size, or the one that fits most blocks. UsageError for a
    site without nodes, a base below one, and node names that Slurm can't read.
    """
    found = blocks(site)
    sizes = block_sizes(found, base)
    lines = [_HEADER.rstrip("\n"), *_short(found, sizes[0]), ""]
    for block in found:
        lines += [*renamed(block.name, block.real), f"BlockName={block.name} Nodes={node_list(block.nodes)}"]
    lines.append(f"BlockSizes={','.join(map(str, sizes))}")
    return "\n".join(lines) + "\n"


def blocks(site: Site) -> tuple[Block, ...]:
    """The blocks in the order of the fabric, so that neighbours in it are neighbours in the list."""
    names = Names(slurm)
    found: list[Block] = []
    top = largest(site)
    rows = [] if top is None else [top]
    while rows:
        group = rows.pop()
        if group.tier_name == DOMAIN or not group.children:
            found.append(Block(names.new(group.name), group.name, group.nodes()))
            continue
        if group.loose:
            rest = f"{group.name}.nodes"
            rows.append(Group(rest, group.tier, group.tier_name, (), group.loose))
        rows += reversed(group.children)
    return tuple(found)


def block_sizes(found: Sequence[Block], base: int | None = None) -> tuple[int, ...]:
    """The base block size, and twice, four times, … of it for as many blocks as there are.

    The base is the commonest size of the blocks at least half as large as the largest one, the larger where two are
    as common.
    """
    if not found:
        raise UsageError("the site has no nodes", fix="an empty topology.conf stops slurmctld")
    if base is not None and base < 1:
        raise UsageError(f"the base block size {base} is too small", fix="1 or more")
    if base is None:
        most = max(len(block.nodes) for block in found)
        sizes = Counter(len(block.nodes) for block in found if 2 * len(block.nodes) >= most)
        base = max(sizes, key=lambda size: (sizes[size], size))
    found_sizes, times = [], 1
    while times <= min(len(found), MAX_TIMES):
        found_sizes.append(base * times)
        times *= 2
    return tuple(found_sizes)


def _short(found: Sequence[Block], base: int) -> list[str]:
    short = [f"{block.name} ({len(block.nodes)})" for block in found if len(block.nodes) < base]
    if not short:
        return []
    shown = ", ".join(short[:8]) + (f" and {len(short) - 8} more" if len(short) > 8 else "")
    return [
        "#",
        f"# Smaller than the base: {shown}.",
        "# Slurm takes such blocks from 25.05 on. Before, it refuses to start: give the smallest size as base there.",
    ]
