"""The parts of a node as the audit sees them: what several captures say of one GPU or HCA port, taken together.

Merging for the site keeps the value of the source that is trusted most; here the worst link count is kept, because a
tool that still answers hides what another one sees (facts §0.1: `nvidia-smi nvlink -s` answered on a tray whose GPU
had none).
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from rackyard.fabric.discover.gpus import same_gpu
from rackyard.fabric.facts import GpuFact, HostFact, NicFact, Source


class GpuView(msgspec.Struct, frozen=True, gc=False):
    """One GPU of a node: the values of all its facts in `fact`, the facts themselves for proof."""

    node: str
    fact: GpuFact
    facts: tuple[GpuFact, ...]

    @property
    def label(self) -> str:
        """`GPU 2`, or by PCI address or UUID where no index was given."""
        fact = self.fact
        return f"GPU {fact.index}" if fact.index is not None else f"GPU {fact.pci or fact.uuid or '?'}"

    @property
    def key(self) -> tuple[str, str]:
        """Name and order."""
        return self.node, f"{self.label:>8}"

    def source(self, name: str) -> Source:
        """Where the value of a field comes from."""
        return source_of(self.facts, name, getattr(self.fact, name))


class NicView(msgspec.Struct, frozen=True, gc=False):
    """One port of an HCA of a node. `slot` is the name that the HCA at this place has on its peers."""

    node: str
    fact: NicFact
    facts: tuple[NicFact, ...]
    slot: str

    @property
    def label(self) -> str:
        """`mlx5_0 port 1`."""
        return f"{self.fact.name} port {self.fact.port}"

    @property
    def key(self) -> tuple[str, str]:
        """Name and order."""
        return self.node, f"{self.fact.name:>12} {self.fact.port}"

    def source(self, name: str) -> Source:
        """Where the value of a field comes from."""
        return source_of(self.facts, name, getattr(self.fact, name))

    @property
    def up(self) -> bool | None:
        """Whether the port carries traffic; None when nobody said."""
        state, phys = self.fact.state, self.fact.phys_state
        if state is None and phys is None:
            return None
        return (state is None or state.upper() == "ACTIVE") and (phys is None or phys.lower() == "linkup")


Fact = TypeVar("Fact", GpuFact, NicFact, HostFact)


def order(fact: GpuFact | NicFact | HostFact) -> tuple[str, str, int, str]:
    """The order in which facts count, whatever order they were read in; what they say decides between two of one
    line.
    """
    source = fact.source
    return source.reader, source.file, source.line or 0, str(fact)


def source_of(facts: Sequence[Fact], name: str, value: object) -> Source:
    """The source of the fact that says so; of the first one where none does."""
    return next((fact.source for fact in facts if getattr(fact, name) == value), facts[0].source)


def gpu_views(node: str, facts: Sequence[GpuFact]) -> tuple[GpuView, ...]:
    """The GPUs of a node. Facts are of one GPU when they share the PCI address, else the UUID, else the index."""
    addresses = {fact.pci for fact in facts}
    if None not in addresses and len(addresses) == len(facts):
        groups: Iterable[Sequence[GpuFact]] = [(fact,) for fact in facts]
    else:
        groups = same_gpu(sorted(facts, key=order))
    views = [GpuView(node, _whole(group, ("links",)), tuple(group)) for group in groups]
    return tuple(sorted(views, key=lambda view: (view.fact.index is None, view.fact.index or 0, view.key)))


def nic_groups(facts: Sequence[NicFact]) -> list[tuple[NicFact, tuple[NicFact, ...]]]:
    """The HCA ports of a node, each as one fact and the facts it is made of, in the order of their names.

    An interface that LLDP or a fabric manager knows joins the HCA that the host says it belongs to; interfaces that
    belong to no HCA are left out.
    """
    device_of = {fact.netdev: fact.name for fact in facts if fact.netdev and fact.netdev != fact.name}
    groups: dict[tuple[str, int], list[NicFact]] = {}
    for fact in facts:
        groups.setdefault((device_of.get(fact.name, fact.name), fact.port), []).append(fact)
    found = []
    for (name, _), group in sorted(groups.items()):
        members = group if len(group) == 1 else sorted(group, key=lambda fact: (fact.name != name, *order(fact)))
        whole = _whole(members, ())
        if _is_hca(whole):
            found.append((whole, tuple(members)))
    return found


def _is_hca(fact: NicFact) -> bool:
    told = (fact.guid, fact.hca_type, fact.board_id, fact.link_layer, fact.state)
    return fact.name != fact.netdev or any(value is not None for value in told)


def _whole(facts: Sequence[Fact], least: Iterable[str]) -> Fact:
    """One fact with the first value given of every field; of the fields in `least`, the lowest."""
    if len(facts) == 1:
        return facts[0]
    values = {name: getattr(facts[0], name) for name in facts[0].__struct_fields__}
    for name in [name for name, value in values.items() if value is None]:
        values[name] = next((value for fact in facts if (value := getattr(fact, name)) is not None), None)
    for name in least:
        values[name] = min((value for fact in facts if (value := getattr(fact, name)) is not None), default=None)
    return type(facts[0])(**values)
