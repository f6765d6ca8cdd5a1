"""The compact table that `rackyard topo collect` writes from sysfs: one row a thing, columns separated by tabs.

    #rackyard-sysfs 1
    host  kernel  product  machine  cpu vendor  cpu family  cpu model
    cpu   NUMA node  list of CPUs
    pci   address  parent  numa_node  class  vendor  device  subsystem vendor  subsystem device
          current speed  maximum speed  current width  maximum width
    net   interface  PCI address  port (from 0)
    ib    device  port (from 1)  PCI address  numa_node  node_guid  board_id  hca_type  fw_ver
          rate  state  phys_state  link_layer

Cells hold what the kernel's file holds, and nothing where the file is not there. `net` rows stand above the `ib` rows.
Rows of other kinds are from a later version and are passed over.
"""

from functools import lru_cache

from rackyard.errors import SpecError, Where
from rackyard.fabric.facts import CpuFact, Facts, HostFact, NicFact, PciFact, PciRows, PciTable, Source
from rackyard.fabric.readers.reader import Capture, Reader, text_of
from rackyard.fabric.readers.sysfs_values import (
    arch_of,
    bdf_of,
    cpus_of,
    gbps_of,
    guid_of,
    hex_of,
    lanes_of,
    netdev_of,
    speed_of,
    state_of,
    whole,
)

NAME = "sysfs-table"
FIRST = "#rackyard-sysfs 1"


def _knows(head: str, file: str) -> bool:
    return head.startswith(FIRST)


class _Table:
    """One table being read: the facts so far, and what later rows need of earlier ones."""

    def __init__(self, capture: Capture) -> None:
        self.node = capture.node
        self.facts = Facts()
        self.machine: tuple[str | None, str | None, int | None, int | None] = (None, None, None, None)
        self.ports: dict[str, list[tuple[int, str]]] = {}

    def host(self, source: Source, cells: list[str]) -> None:
        _, kernel, product, machine, vendor, family, model = cells
        self.machine = (arch_of(machine), vendor or None, whole(family), whole(model))
        host = HostFact(node=self.node, source=source, kernel=kernel or None, product=product or None)
        self.facts.hosts.append(host)

    def cpu(self, source: Source, cells: list[str]) -> None:
        _, node, listed = cells
        cpus = cpus_of(listed)
        if cpus is not None:
            arch, vendor, family, model = self.machine
            numa = int(node)
            self.facts.cpus.append(
                CpuFact(
                    node=self.node,
                    source=source,
                    numa=numa,
                    cpus=cpus,
                    arch=arch,
                    vendor=vendor,
                    family=family,
                    model=model,
                )
            )

    def net(self, source: Source, cells: list[str]) -> None:
        _, name, at, port = cells
        if name and (pci := bdf_of(at)):
            self.ports.setdefault(pci, []).append((whole(port) or 0, name))

    def ib(self, source: Source, cells: list[str]) -> None:
        _, name, number, at, numa, guid, board, hca, firmware, rate, state, phys, layer = cells
        port, pci = int(number), bdf_of(at)
        if not name:
            raise ValueError("the device has no name")
        self.facts.nics.append(
            NicFact(
                node=self.node,
                source=source,
                name=name,
                port=port,
                netdev=netdev_of(port, self.ports.get(pci or "", ())),
                pci=pci,
                numa=whole(numa),
                guid=guid_of(guid),
                gbps=gbps_of(rate),
                state=state_of(state),
                phys_state=state_of(phys),
                link_layer=layer or None,
                firmware=firmware or None,
                board_id=board or None,
                hca_type=hca or None,
            )
        )


_Device = tuple[
    str | None, str | None, str | None, str | None, str | None, str | None, str | None, int | None, int | None
]


@lru_cache(4096)
def _device(kind: str) -> _Device:
    """The columns of a pci row from its class on. Half a million functions of a site are of a few dozen kinds."""
    cls, vendor, device, sub_vendor, sub_device, speed, speed_max, width, width_max = kind.split("\t")
    return (
        hex_of(cls),
        hex_of(vendor),
        hex_of(device),
        hex_of(sub_vendor),
        hex_of(sub_device),
        speed_of(speed),
        speed_of(speed_max),
        lanes_of(width),
        lanes_of(width_max),
    )


@lru_cache(1024)
def _rows(block: str) -> PciRows:
    """The functions of consecutive pci rows. Trays of a kind have the same to the letter, so they are read once."""
    return PciRows(tuple(_function(place, row) for place, row in enumerate(block.split("\n"))))


def _function(place: int, row: str) -> PciFact:
    _, at, parent, numa, kind = row.split("\t", 4)
    bdf = bdf_of(at)
    if bdf is None:
        raise ValueError(f"{at!r} is no PCI address")
    cls, vendor, device, sub_vendor, sub_device, speed, speed_max, width, width_max = _device(kind)
    return PciFact(
        node="",
        source=Source(NAME, "", place, row),
        bdf=bdf,
        parent=bdf_of(parent) or "",
        numa=whole(numa),
        pci_class=cls,
        vendor=vendor,
        device=device,
        subsystem_vendor=sub_vendor,
        subsystem_device=sub_device,
        speed=speed,
        speed_max=speed_max,
        width=width,
        width_max=width_max,
    )


_PCI = "pci\t"


def read(capture: Capture) -> Facts:
    """Everything in the table. SpecError with the line of a row with other columns than its kind, or without a number
    where one must be.
    """
    table = _Table(capture)
    kinds = {"host": table.host, "cpu": table.cpu, "net": table.net, "ib": table.ib}
    file = capture.file
    rows = text_of(capture).split("\n")
    at = 0
    while at < len(rows):
        row = rows[at]
        first, at = at, at + 1
        if row.startswith(_PCI):
            while at < len(rows) and rows[at].startswith(_PCI):
                at += 1
            source = Source(NAME, file, first + 1, row)
            found = _table_rows(file, first + 1, rows[first:at])
            table.facts.pci_tables.append(PciTable(node=table.node, source=source, rows=found))
            continue
        cells = row.split("\t")
        kind = kinds.get(cells[0])
        if kind is not None:
            try:
                kind(Source(NAME, file, first + 1, row), cells)
            except ValueError as error:
                raise _misfit(file, first + 1, row, error) from None
    return table.facts


def _table_rows(file: str, first: int, rows: list[str]) -> PciRows:
    try:
        return _rows("\n".join(rows))
    except ValueError:
        for place, row in enumerate(rows):
            try:
                _function(place, row)
            except ValueError as error:
                raise _misfit(file, first + place, row, error) from None
        raise


def _misfit(file: str, line: int, row: str, error: ValueError) -> SpecError:
    why = str(error)
    if "unpack" in why:
        why = f"it has {row.count(chr(9)) + 1} columns"
    return SpecError(
        f"this {row.partition(chr(9))[0]} row is not as `rackyard topo collect` writes it",
        where=Where(file, line, 1),
        why=why,
        fix="collect the node again: the file was cut short or edited",
    )


READER = Reader(NAME, _knows, read)
