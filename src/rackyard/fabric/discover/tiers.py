"""Leaves and spines by a scheduler's word: for sites of which a topology file was read, and no cable."""

from collections.abc import Iterable, Mapping

from rackyard.fabric.discover.names import natural
from rackyard.fabric.facts import HostFact
from rackyard.fabric.model import Health, Leaf, Nic, Spine


def link_to(host: HostFact | None, nics: tuple[Nic, ...]) -> tuple[Nic, ...]:
    """The node's NICs; where no cable of it is known, one more that stands for its link to the switch above it, of
    which nobody said more than the switch's name.
    """
    if host is None or not host.tiers or any(nic.leaf for nic in nics):
        return nics
    return (*nics, Nic(len(nics), "", -1, 0, -1, "", host.tiers[0], Health.UNKNOWN))


def switches_of(
    hosts: Iterable[HostFact], rack_of: Mapping[str, str], known: set[str]
) -> tuple[list[Leaf], list[Spine]]:
    """The switches above the hosts that no cable told of (`known` are those), each with the one above it."""
    leaves: dict[str, Leaf] = {}
    spines: dict[str, Spine] = {}
    for host in hosts:
        if not host.tiers or host.tiers[0] in known:
            continue
        first = host.tiers[0]
        leaves.setdefault(first, Leaf(first, -1, rack_of.get(host.node, ""), 0, host.tiers[1:2]))
        for at, name in enumerate(host.tiers[1:], 1):
            if name not in known:
                spines.setdefault(name, Spine(name, above=host.tiers[at + 1 : at + 2]))
    return (
        sorted(leaves.values(), key=lambda leaf: (natural(leaf.rack), natural(leaf.name))),
        sorted(spines.values(), key=lambda spine: natural(spine.name)),
    )
