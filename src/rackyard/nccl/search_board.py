"""The board that the graph search plays on: bandwidth left on each link, and routes between GPUs, nets and NVSwitch.

Taking a route subtracts a channel's bandwidth from every link of it, and giving it back adds it. NCCL rounds each link
to a thousandth of a GB/s after either, in 32-bit floats. The same few differences come up millions of times, so each is
computed once and looked up afterwards (`_Remainder`); that keeps the search exact and quick at once.

Source of the rules: NCCL 2.30.7 and 2.29.7, `src/graph/search.cc`.
"""

import math
from dataclasses import dataclass

from rackyard.errors import RackyardError
from rackyard.nccl.cpus import ARCH_POWER, ARCH_X86, VENDOR_INTEL
from rackyard.nccl.linktypes import GPU, LINK_NVL, LINK_PCI, PATH_DIS, PATH_PHB
from rackyard.nccl.numbers import as_float
from rackyard.nccl.topology import CpuNode, DevNode, GpuNode, System

_NO_RETURN = -1
_PLAIN, _EIGHTH, _WHOLE = 0, 1, 2


class _Remainder(dict[float, float]):
    """What is left of a link (GB/s) after ``amount`` is taken, by what was there before."""

    __slots__ = ("amount",)

    def __init__(self, amount: float) -> None:
        super().__init__()
        self.amount = amount

    def __missing__(self, before: float) -> float:
        thousandths = as_float(as_float(before - self.amount) * 1000.0)
        if math.isfinite(thousandths):
            whole = math.copysign(math.floor(abs(thousandths) + 0.5), thousandths)
            thousandths = as_float(whole)
        after = as_float(thousandths / 1000.0)
        self[before] = after
        return after


@dataclass(frozen=True, slots=True)
class Hop:
    """One link of a route that costs more than its own bandwidth.

    ``pci`` links may carry an overhead; ``back`` is the opposite link that is charged too (`_NO_RETURN` for none),
    ``share`` an eighth or the whole of the bandwidth.
    """

    link: int
    pci: bool
    back: int
    share: int


@dataclass(frozen=True, slots=True)
class Route:
    """A path as the search uses it. ``back_type`` is the type of the opposite path.

    ``hops`` is None for a route whose links all cost the channel's bandwidth; ``overhead`` says that its PCI links cost
    a fifth more, because an Intel CPU splits GPU to GPU traffic into small packets.
    """

    type: int
    back_type: int
    links: tuple[int, ...]
    overhead: bool
    hops: tuple[Hop, ...] | None


class Board:
    """Bandwidth left, and routes. One board serves all graphs of one communicator, one after the other.

    ``full`` collects the links that had too little left when they were wanted, and ``special_used`` says that a route
    with special costs was tried; both since they were last reset.
    """

    __slots__ = ("_remainders", "_routes", "full", "left", "net_left", "special_used", "system")

    def __init__(self, system: System) -> None:
        self.system = system
        self.left = list(system.link_bw)
        self.full: set[int] = set()
        self.special_used = False
        self.net_left = [net.bw for net in system.nets()]
        self._remainders: dict[float, _Remainder] = {}
        self._routes: dict[tuple[int, int, int, int], Route] = {}

    def remainder(self, amount: float) -> _Remainder:
        """The table for one amount of GB/s."""
        table = self._remainders.get(amount)
        if table is None:
            table = self._remainders[amount] = _Remainder(amount)
        return table

    def take(self, route: Route, bw: float) -> bool:
        """Take ``bw`` from every link of a route; False, and nothing taken, where one has less left."""
        if route.hops is not None:
            return self._take_hops(route, bw)
        left = self.left
        after = self.remainder(bw)
        for taken, link in enumerate(route.links):
            before = left[link]
            if before < bw:
                self.full.add(link)
                back = self.remainder(-bw)
                for undo in route.links[:taken]:
                    left[undo] = back[left[undo]]
                return False
            left[link] = after[before]
        return True

    def give(self, route: Route, bw: float) -> None:
        """Give back what `take` took."""
        if route.hops is not None:
            self._give_hops(route.hops, bw, route.overhead)
            return
        left = self.left
        back = self.remainder(-bw)
        for link in route.links:
            left[link] = back[left[link]]

    def _take_hops(self, route: Route, bw: float) -> bool:
        assert route.hops is not None
        self.special_used = True
        for number, hop in enumerate(route.hops):
            forth, back = _costs(hop, bw, route.overhead)
            if self.left[hop.link] < forth or (back != 0 and self.left[hop.back] < back):
                self._give_hops(route.hops[:number], bw, route.overhead)
                return False
            self._charge(hop, forth, back)
        return True

    def _give_hops(self, hops: tuple[Hop, ...], bw: float, overhead: bool) -> None:
        for hop in hops:
            forth, back = _costs(hop, -bw, overhead)
            self._charge(hop, forth, back)

    def _charge(self, hop: Hop, forth: float, back: float) -> None:
        self.left[hop.link] = self.remainder(forth)[self.left[hop.link]]
        if back != 0:
            self.left[hop.back] = self.remainder(back)[self.left[hop.back]]

    def route(self, from_type: int, from_place: int, to_type: int, to_place: int) -> Route:
        """The route from one GPU, net or NVSwitch to another, by their places among their type."""
        key = (from_type, from_place, to_type, to_place)
        route = self._routes.get(key)
        if route is None:
            route = self._routes[key] = self._make_route(*key)
        return route

    def _make_route(self, from_type: int, from_place: int, to_type: int, to_place: int) -> Route:
        system = self.system
        source, target = system.of_type[from_type][from_place], system.of_type[to_type][to_place]
        row, back_row = system.rows[to_type][source], system.rows[from_type][target]
        if row is None:
            return Route(PATH_DIS, PATH_DIS, (), False, None)
        links = row.links[to_place]
        back_type = PATH_DIS if back_row is None else back_row.type[from_place]
        overhead = row.type[to_place] == PATH_PHB and from_type == GPU and any(self._into_intel(link) for link in links)
        hops = self._hops(source, links) if from_type != GPU or self._has_power() else None
        if overhead and hops is None:
            hops = tuple(Hop(link, system.link_type[link] == LINK_PCI, _NO_RETURN, _PLAIN) for link in links)
        return Route(row.type[to_place], back_type, links, overhead, hops)

    def _hops(self, source: int, links: tuple[int, ...]) -> tuple[Hop, ...] | None:
        """The links with what they cost beside themselves; None where none does."""
        hops = tuple(self._hop(source, link) for link in links)
        return hops if any(hop.back != _NO_RETURN for hop in hops) else None

    def _hop(self, source: int, link: int) -> Hop:
        system = self.system
        target = system.nodes[system.link_to[link]]
        link_type = system.link_type[link]
        share = _PLAIN
        if target.type == system.dev_type and system.nodes[source].type != GPU and _sm(target) < 80:
            share = _EIGHTH
        elif isinstance(target, CpuNode) and target.arch == ARCH_POWER and link_type == LINK_NVL:
            share = _WHOLE
        if share == _PLAIN:
            return Hop(link, link_type == LINK_PCI, _NO_RETURN, _PLAIN)
        back = system.find_link(target.index, system.link_from[link], link_type)
        if back is None:
            raise RackyardError(f"no link leads back from {target.name}", why="every NVLink and PCI link has two ends")
        return Hop(link, link_type == LINK_PCI, back, share)

    def _has_power(self) -> bool:
        return any(cpu.arch == ARCH_POWER for cpu in self.system.cpus())

    def _into_intel(self, link: int) -> bool:
        node = self.system.nodes[self.system.link_to[link]]
        return isinstance(node, CpuNode) and node.arch == ARCH_X86 and node.vendor == VENDOR_INTEL


def _costs(hop: Hop, bw: float, overhead: bool) -> tuple[float, float]:
    """GB/s that a hop costs: on its own link and on the opposite one."""
    forth = as_float(as_float(bw * 6.0) / 5.0) if hop.pci and overhead else bw
    if hop.share == _PLAIN:
        return forth, 0.0
    return forth, as_float(forth / 8.0) if hop.share == _EIGHTH else forth


def _sm(node: object) -> int:
    return node.sm if isinstance(node, DevNode | GpuNode) else 0
