"""Last steps on the graph: two-level Broadcom switches become one, CPUs are linked, uplinks go to the end.

Source: NCCL 2.30.7, ``src/graph/topo.cc``.
"""

from rackyard.nccl.cpus import inter_cpu_bw
from rackyard.nccl.linktypes import LINK_PCI, LINK_SYS, MAX_LINKS, PCI, UNDEF
from rackyard.nccl.system_links import Links
from rackyard.nccl.topology import PciNode, TopoNode
from rackyard.nccl.version import Version

_DEVICE_MASK = 0xFFFFFFFFFFFFF000
_PEX_GEN4 = 0x1000C0101000A000
_PEX_GEN5 = 0x1000C03010000000
_DEEPEST = 50_000  # some 8 MiB of NCCL's stack


def broadcom_generation(device: int, level: int) -> int:
    """4 or 5 for a Broadcom PEX switch in base mode, which shows itself as two levels, else 0. Level 0 is on top."""
    if device & _DEVICE_MASK == _PEX_GEN4:
        return 4
    return 5 if device & _DEVICE_MASK == _PEX_GEN5 | level * 0x1000 else 0


class Switches(Links):
    """Finishes the graph. ``_after_end`` holds what NCCL leaves behind a node's last link when it removes links.

    NCCL looks past the end when it moves an uplink to the end, so those entries can come back; the model has to follow.
    They may lead to switches that are removed: ``_ghosts`` are the nodes behind the end of NCCL's list of switches.
    """

    def __init__(self, version: Version, file: str) -> None:
        super().__init__(version, file)
        self._after_end: dict[int, list[tuple[int, int]]] = {}
        self._ghosts: list[int] = []

    def finish(self) -> None:
        """All last steps, in NCCL's order."""
        while self._flatten_one():
            pass
        self._connect_cpus()
        leftovers = self._settle_leftovers()
        for cpu in self.system.cpus():
            self._sort(cpu, leftovers)

    def _flatten_one(self) -> bool:
        """Flatten the first switch that needs it; the marker 0xffff keeps it from being found again.

        NCCL holds on to the switch's place in its list. If a node before it goes, the next one takes that place, and
        with it what is left to do; the switch itself is then found once more.
        """
        system = self.system
        for place in range(system.count(PCI)):
            switch = self._switch_at(place)
            generation = broadcom_generation(switch.device, 0) if switch is not None else 0
            if switch is not None and generation:
                for sub_id in self._cut_lower(switch, generation):
                    self._take_over(self._switch_at(place), system.place_of_id(PCI, sub_id))
                marked = self._switch_at(place)
                if marked is not None:
                    marked.device |= 0xFFFF
                return True
        return False

    def _switch_at(self, place: int) -> PciNode | None:
        numbers = self.system.of_type[PCI]
        node = self.system.nodes[numbers[place]] if place < len(numbers) else None
        return node if isinstance(node, PciNode) else None

    def _cut_lower(self, switch: PciNode, generation: int) -> list[int]:
        """Remove the switch's links to halves of its own kind, and give those halves' ids."""
        system = self.system
        lower: list[int] = []
        for link in list(system.links[switch.index]):
            sub = system.nodes[system.link_to[link]]
            if isinstance(sub, PciNode) and broadcom_generation(sub.device, 1) == generation:
                lower.append(sub.id)
                self._drop(switch.index, link)
        return lower

    def _take_over(self, switch: PciNode | None, place: int | None) -> None:
        """Hang everything around a lower half to the switch and remove the lower half."""
        system = self.system
        sub = self._switch_at(place) if place is not None else None
        if switch is None or sub is None:
            self.refuse("")
        # Where the switch has become its own lower half, the list grows under the loop up to the limit, as in NCCL.
        for link in system.links[sub.index]:
            device = system.link_to[link]
            if device == switch.index:
                continue
            if len(system.links[switch.index]) == MAX_LINKS:
                self.refuse(f"Error : too many Topo links (max {MAX_LINKS})")
            self._append(switch.index, link)
            for back in system.links[device]:
                if system.link_to[back] == sub.index:
                    system.link_to[back] = switch.index
                    break
        for node in [number for numbers in system.of_type for number in numbers]:
            for link in [link for link in system.links[node] if system.link_to[link] == sub.index]:
                self._drop(node, link)
        # The last place keeps what was there, behind the end of the list.
        place = system.of_type[PCI].index(sub.index)
        last = system.of_type[PCI][-1]
        self._ghosts.insert(0, last)
        del system.of_type[PCI][place]

    def _drop(self, node: int, link: int) -> None:
        """Remove a link. NCCL moves the links behind it up, so the last one stays behind the end, with its old target.

        A target is a place in NCCL's lists, and there it stays the same place when switches before it go.
        """
        system = self.system
        links = system.links[node]
        last = links[-1]
        target = system.nodes[system.link_to[last]]
        place = system.of_type[PCI].index(target.index) if target.type == PCI else UNDEF
        links.remove(link)
        self._after_end.setdefault(node, []).insert(0, (last, place))

    def _append(self, node: int, link: int) -> None:
        """A copy of a link for another node, in the place behind the node's last link."""
        system = self.system
        system.links[node].append(self._copy(node, link, system.link_to[link]))
        if self._after_end.get(node):
            self._after_end[node].pop(0)

    def _copy(self, node: int, link: int, to: int) -> int:
        system = self.system
        system.link_from.append(node)
        system.link_to.append(to)
        system.link_type.append(system.link_type[link])
        system.link_bw.append(system.link_bw[link])
        return len(system.link_bw) - 1

    def _connect_cpus(self) -> None:
        self.at = None
        cpus = self.system.cpus()
        for cpu in cpus:
            bw = inter_cpu_bw(cpu)
            for other in cpus:
                if cpu is not other and cpu.host == other.host:
                    self.connect(cpu, other, LINK_SYS, bw)

    def _settle_leftovers(self) -> dict[int, list[int]]:
        """What is behind the ends, as links to the switches that stand at their targets' places now."""
        system = self.system
        switches = system.of_type[PCI] + self._ghosts
        settled: dict[int, list[int]] = {}
        for node, leftovers in self._after_end.items():
            for link, place in leftovers:
                to = switches[place] if place != UNDEF else system.link_to[link]
                settled.setdefault(node, []).append(self._copy(node, link, to))
        return settled

    def _sort(self, cpu: TopoNode, leftovers: dict[int, list[int]]) -> None:
        """Move the uplink of every node of a CPU's PCI tree behind its other links, the node's children after it.

        A leftover behind the end can lead back up; NCCL then goes on with the lists as they have become meanwhile.
        """
        system = self.system
        stack: list[tuple[int, int, int]] = [(cpu.index, UNDEF, 0)]
        while stack:
            node, above, step = stack.pop()
            links = system.links[node]
            if step == len(links):
                continue
            stack.append((node, above, step + 1))
            to = system.link_to[links[step]]
            if system.link_type[links[step]] == LINK_PCI and to != above:
                self._uplink_last(to, node, leftovers)
                stack.append((to, node, 0))
                if len(stack) > _DEEPEST:
                    self.refuse("", crashes=True)

    def _uplink_last(self, node: int, above: int, leftovers: dict[int, list[int]]) -> None:
        system = self.system
        links = system.links[node]
        entries = links + leftovers.get(node, [])
        uplink = next((link for link in entries if system.link_to[link] == above), None)
        if uplink is None:
            self.refuse("", crashes=True)
        entries.remove(uplink)
        entries.append(uplink)
        if node in leftovers:
            leftovers[node] = entries[len(links) :]
        links[:] = entries[: len(links)]
