"""What may be compared with what: GPUs of one product, and HCAs of nodes that have the same HCAs.

A site holds HGX servers beside NVL72 racks, GB200 beside GB300, racks with other NICs. A node belongs with the nodes of
its rack, and racks in which most nodes have the same HCA names, types (or rates, where no type is known) and GPU
product belong together. So an HCA that one tray lacks is missing, and one that a whole rack lacks is another build.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackyard.fabric.expect.majority import pattern
from rackyard.fabric.facts import NicFact

_ENOUGH = 3
"""Nodes that a rack must show before it can be a pattern of its own: of two that differ, neither is one."""

Ports = frozenset[tuple[str, int]]


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Nodes with the same GPUs and the same HCAs. `ports` are (HCA, port) that each should have, empty without a
    pattern; `places` says which HCA is at a PCI address on most of the nodes; `nodes` counts those with any HCA.
    """

    family: str
    ports: Ports
    nic: str
    nodes: int
    places: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`GB300 (MT4131)`."""
        return f"{self.family} ({self.nic})" if self.nic else self.family


def families(
    names: Sequence[str], products: Mapping[str, str | None], arch: Mapping[str, str], gpus: Mapping[str, int]
) -> dict[str, str]:
    """What to call the nodes whose GPUs are alike: the product, else the CPU architecture and whether it is a server
    of eight.

    NCCL dumps give no product; a tray has four GPUs and a server eight (facts §3).
    """
    found = {}
    for name in names:
        product = products[name]
        if product:
            found[name] = " ".join(product.replace("-", " ").split()).upper().removeprefix("NVIDIA ")
        else:
            size = "8-GPU" if gpus.get(name, 0) > 4 else "4-GPU" if gpus.get(name) else "no-GPU"
            found[name] = f"{arch[name]} {size}" if name in arch else size
    return found


def kinds_of(
    family: Mapping[str, str], rack: Mapping[str, str], nics: Mapping[str, Sequence[NicFact]]
) -> dict[str, Kind]:
    """The kind of every node."""
    racks: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in family:
        if nics.get(name):
            racks[family[name], rack[name]].append(name)
    pools: dict[str, list[str]] = defaultdict(list)
    for (kind, _), names in racks.items():
        pools[kind] += names
    usual = {kind: _build(names, nics) for kind, names in pools.items()}
    members: dict[tuple[str, Ports, str], list[str]] = defaultdict(list)
    for (kind, where), names in racks.items():
        own = _build(names, nics) if where and len(names) >= _ENOUGH else None
        members[(kind, *(own or usual[kind] or (frozenset(), "")))] += names
    found = {}
    for (kind, ports, nic), names in members.items():
        made = Kind(kind, ports, nic, len(names), _places(names, nics))
        found.update(dict.fromkeys(names, made))
    none = {kind: Kind(kind, frozenset(), "", 0) for kind in set(family.values())}
    return {name: found.get(name) or none[family[name]] for name in family}


def _build(names: Sequence[str], nics: Mapping[str, Sequence[NicFact]]) -> tuple[Ports, str] | None:
    """The HCA ports that most of these nodes have, and their types or rates; None without such a pattern."""
    ports = pattern(Counter(frozenset((nic.name, nic.port) for nic in nics[name]) for name in names))
    if ports is None:
        return None
    types = pattern(Counter(frozenset(nic.hca_type for nic in nics[name] if nic.hca_type) for name in names))
    if types:
        return ports, "+".join(sorted(types))
    rate = pattern(Counter(nic.gbps for name in names for nic in nics[name] if nic.gbps))
    return ports, f"{rate:g} Gb/s" if rate else ""


def _places(names: Sequence[str], nics: Mapping[str, Sequence[NicFact]]) -> dict[str, str]:
    at: dict[str, Counter[str]] = defaultdict(Counter)
    for name in names:
        for nic in nics[name]:
            if nic.pci:
                at[nic.pci][nic.name] += 1
    return {pci: usual for pci, counts in at.items() if (usual := pattern(counts)) and counts[usual] * 2 > len(names)}
