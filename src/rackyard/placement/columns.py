"""A site as numpy columns: what decisions over many thousand nodes look at. Made once a site, then only read."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackyard.fabric import Health, Node, Site, largest
from rackyard.placement.shape import NodeClass, node_classes

Ints = NDArray[np.int32]
Masks = NDArray[np.uint32]
Flags = NDArray[np.bool_]

MOST_GPUS = 32
"""GPUs of a node that a mask has bits for."""

_TIERS = {"leaf-group": "leaf", "spine-group": "block", "core-group": "part"}


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Nodes stand class by class, pool by pool, in site order within.

    A *pool* is nodes to take from together: an NVLink domain; or the servers of one rack that are each their own
    domain (`loose`), which stand in for one another though no segment can span two of them.
    """

    site: Site
    classes: tuple[NodeClass, ...]
    names: tuple[str, ...]
    index: Mapping[str, int]
    nodes: tuple[Node, ...]
    order: Ints
    """Position of each node in the site."""
    kind: Ints
    """The class of each node."""
    pool: Ints
    rack_of: Ints
    """The rack of each node, by its position in the site."""
    size: Ints
    """GPUs of each node."""
    all: Masks
    """GPUs of each node as a mask, as are the next four."""
    healthy: Masks
    sound: Masks
    """Healthy and with NVLinks: without, a GPU answers every query and drags a rack down (facts: topology §0.1)."""
    aligned: Masks
    """GPUs whose own rail has a healthy NIC."""
    served: Masks
    """GPUs of nodes with any healthy NIC, or of a class without NICs."""
    rails: Masks
    """The rails that each node has a healthy NIC on, as a mask."""
    memory: NDArray[np.float64]
    """GiB of the smallest GPU of each node."""
    nic: Ints
    """Gb/s of the slowest healthy NIC of each node; 0 when nobody said."""
    wear: Ints
    """Parts of each node that are degraded: NICs out of order or slower than the class has, GPUs short of links."""
    bad: Flags
    """Nodes whose health is not good, unknown included."""
    cordoned: Flags
    starts: NDArray[np.int64]
    """First node of each pool, and one past the last node."""
    pool_kind: Ints
    """The class of each pool, as the next ones one value a pool."""
    loose: Flags
    weak: Flags
    """Pools whose NVLink is degraded or unknown."""
    down: Flags
    total: Ints
    """Nodes."""
    domain_gpus: Ints
    """GPUs of the whole NVLink domain (of one server where the pool is loose)."""
    rack: Ints
    """The first rack of the pool, by its position in the site."""
    tier: Mapping[str, Ints]
    """By `leaf`, `block` and `part`: the number of the pool's group."""
    rack_names: tuple[str, ...]
    """Of each pool: `r01+r02` for a domain over two racks."""
    worn: bool
    """Whether any node has degraded parts."""
    memo: dict[Hashable, Any] = field(default_factory=dict)
    """What follows from the columns alone and was asked before."""

    @classmethod
    def of(cls, site: Site) -> "Columns":
        """The columns of a site. ValueError for a node of more than 32 GPUs."""
        return _columns(site)

    def span(self, kind: int) -> slice:
        """Where the nodes of one class stand."""
        return slice(int(np.searchsorted(self.kind, kind)), int(np.searchsorted(self.kind, kind, "right")))

    def pools(self, kind: int) -> slice:
        """Where the pools of one class stand."""
        return slice(int(np.searchsorted(self.pool_kind, kind)), int(np.searchsorted(self.pool_kind, kind, "right")))

    def positions(self, names: Iterable[str]) -> list[int]:
        """Where the nodes of those names stand; names that the site does not have are left out."""
        return [self.index[name] for name in names if name in self.index]


@dataclass(slots=True)
class _Pool:
    rack: str
    loose: bool
    weak: bool
    down: bool
    gpus: int
    nodes: list[int]


def _columns(site: Site) -> Columns:
    classes = node_classes(site)
    at = {node.name: position for position, node in enumerate(site.nodes)}
    pools: list[tuple[int, _Pool]] = []
    for kind, group in enumerate(classes):
        pools += [(kind, pool) for pool in _pools(site, group, at)]
    order = [position for _, pool in pools for position in pool.nodes]
    nodes = tuple(site.nodes[position] for position in order)
    kinds = [kind for kind, pool in pools for _ in pool.nodes]
    parts = [_parts(node, classes[kind]) for node, kind in zip(nodes, kinds, strict=True)]
    rack_at = {rack.name: position for position, rack in enumerate(site.racks)}
    firsts = [pool.nodes[0] for _, pool in pools]
    return Columns(
        site=site,
        classes=classes,
        names=tuple(node.name for node in nodes),
        index=MappingProxyType({node.name: position for position, node in enumerate(nodes)}),
        nodes=nodes,
        order=_ints(order),
        kind=_ints(kinds),
        pool=_ints([number for number, (_, pool) in enumerate(pools) for _ in pool.nodes]),
        rack_of=_ints([rack_at[node.rack] for node in nodes]),
        size=_ints([len(node.gpus) for node in nodes]),
        all=_masks([(1 << len(node.gpus)) - 1 for node in nodes]),
        healthy=_masks([part.healthy for part in parts]),
        sound=_masks([part.sound for part in parts]),
        aligned=_masks([part.aligned for part in parts]),
        served=_masks([part.served for part in parts]),
        rails=_masks([part.rails for part in parts]),
        memory=np.array([part.memory for part in parts], np.float64),
        nic=_ints([part.nic for part in parts]),
        wear=_ints([part.wear for part in parts]),
        bad=np.array([node.health is not Health.HEALTHY for node in nodes], np.bool_),
        cordoned=np.array([bool(node.cordoned) for node in nodes], np.bool_),
        starts=np.cumsum([0, *(len(pool.nodes) for _, pool in pools)], dtype=np.int64),
        pool_kind=_ints([kind for kind, _ in pools]),
        loose=np.array([pool.loose for _, pool in pools], np.bool_),
        weak=np.array([pool.weak for _, pool in pools], np.bool_),
        down=np.array([pool.down for _, pool in pools], np.bool_),
        total=_ints([len(pool.nodes) for _, pool in pools]),
        domain_gpus=_ints([pool.gpus for _, pool in pools]),
        rack=_ints([rack_at[site.nodes[first].rack] for first in firsts]),
        tier=MappingProxyType(_tiers(site, [site.nodes[first].name for first in firsts])),
        rack_names=tuple(pool.rack for _, pool in pools),
        worn=any(part.wear for part in parts),
    )


def _pools(site: Site, group: NodeClass, at: Mapping[str, int]) -> list[_Pool]:
    """The pools of one class, in site order of their first nodes."""
    weak = {rack.domain for rack in site.racks if rack.nvlink is not Health.HEALTHY and rack.domain is not None}
    down = {rack.domain for rack in site.racks if rack.nvlink is Health.DOWN and rack.domain is not None}
    nvlink = {rack.name: rack.nvlink for rack in site.racks}
    members: dict[object, list[Node]] = {}
    racks: dict[object, dict[str, None]] = {}
    for node in site.nodes:
        racks.setdefault(node.domain, {})[node.rack] = None
        if nvlink[node.rack] is not Health.HEALTHY:
            weak.add(node.domain)
        if nvlink[node.rack] is Health.DOWN:
            down.add(node.domain)
    for node in group.nodes:
        members.setdefault(node.domain, []).append(node)
    found: dict[object, _Pool] = {}
    for domain, nodes in members.items():
        loose = len(nodes) == 1
        name = "+".join(racks[domain])
        is_weak, is_down = domain in weak, domain in down
        key = (name, is_weak, is_down) if loose else domain
        gpus = sum(len(node.gpus) for node in nodes)
        pool = found.setdefault(key, _Pool(name, loose, is_weak, is_down, gpus, []))
        pool.nodes += [at[node.name] for node in nodes]
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the GPUs and NICs of one node amount to."""

    healthy: int
    sound: int
    aligned: int
    served: int
    rails: int
    memory: float
    nic: int
    wear: int


def _parts(node: Node, group: NodeClass) -> _Parts:
    if len(node.gpus) > MOST_GPUS:
        raise ValueError(f"node {node.name} has {len(node.gpus)} GPUs: at most {MOST_GPUS} can be placed on")
    healthy = sound = aligned = wear = 0
    rails = {nic.rail for nic in node.nics if nic.health is Health.HEALTHY}
    for gpu in node.gpus:
        bit = 1 << gpu.index
        if gpu.health is Health.HEALTHY:
            healthy |= bit
            sound |= bit if gpu.nvlinks else 0
        if not group.rails or group.rail_of(gpu.index) in rails:
            aligned |= bit
        wear += gpu.nvlinks < group.nvlinks or gpu.health is not Health.HEALTHY
    rates = [nic.gbps for nic in node.nics if nic.health is Health.HEALTHY]
    wear += sum(nic.health is not Health.HEALTHY or nic.gbps < group.nic_gbps for nic in node.nics)
    return _Parts(
        healthy=healthy,
        sound=sound,
        aligned=aligned,
        served=(1 << len(node.gpus)) - 1 if rails or not group.rails else 0,
        rails=sum(1 << rail for rail in rails if 0 <= rail < MOST_GPUS),
        memory=min(gpu.memory_gib for gpu in node.gpus),
        nic=min(rates, default=0),
        wear=wear,
    )


def _tiers(site: Site, firsts: Sequence[str]) -> dict[str, Ints]:
    """The groups of the network above each pool, by the pool's first node; one for all where a tier isn't there."""
    found = {scope: dict[str, int]() for scope in _TIERS.values()}
    counts = dict.fromkeys(found, 0)
    waiting = [group for group in (largest(site),) if group is not None]
    while waiting:
        group = waiting.pop()
        waiting += reversed(group.children)
        scope = _TIERS.get(group.tier_name)
        if scope is not None:
            found[scope].update(dict.fromkeys(group.nodes(), counts[scope]))
            counts[scope] += 1
    return {scope: _ints([numbers.get(first, 0) for first in firsts]) for scope, numbers in found.items()}


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, np.int32)


def _masks(values: Sequence[int]) -> Masks:
    return np.array(values, np.uint32)
