"""What readers say: plain records, each with where it was read. `merge` turns them into a Site.

A value of None means that the source did not say; it never means zero or healthy. Records are msgspec structs, because
a site of 10,000 nodes is half a million of them and they are made ten times faster than dataclasses.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain

import msgspec
from msgspec.structs import replace

from rackyard.fabric.model import Health
from rackyard.findings import Evidence, Finding


class Source(msgspec.Struct, frozen=True, gc=False):
    """Where a fact was read: the reader's name, the file, the line (from 1) and that line's text."""

    reader: str
    file: str = ""
    line: int | None = None
    text: str = ""

    def evidence(self) -> Evidence:
        """The same as proof of a finding."""
        return Evidence(self.file or self.reader, self.text.strip(), self.line)


class HostFact(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is known of a node as a whole. `tiers` are the switches above it, leaf first; `block` is an NVLink domain
    or block by the name that a scheduler gives it; `slot` counts every tray of the rack, `tray` compute trays only.
    """

    node: str
    source: Source
    rack: str | None = None
    chassis: str | None = None
    slot: int | None = None
    tray: int | None = None
    host_id: int | None = None
    cluster_uuid: str | None = None
    clique_id: int | None = None
    block: str | None = None
    tiers: tuple[str, ...] = ()
    product: str | None = None
    driver: str | None = None
    kernel: str | None = None
    health: Health | None = None
    cordoned: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


class CpuFact(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One NUMA node with CPUs; `cpus` as Linux lists them (`0-71`)."""

    node: str
    source: Source
    numa: int
    cpus: str
    arch: str | None = None
    vendor: str | None = None
    family: int | None = None
    model: int | None = None


FABRIC_STATES = ("not-supported", "not-started", "in-progress", "completed")
"""Words for NVML_GPU_FABRIC_STATE_* (nvml.h), by number."""


class GpuFact(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One GPU. It is known by `uuid`, `pci` (lower case, `dddd:bb:dd.f`) or `index`; at least one of them is given.

    `links` counts NVLinks that are up, `links_seen` those that were reported at all; `link_gbps` is GB/s a link and
    direction. `fabric_state` is one of FABRIC_STATES; `health_mask` as NVML packs it. `memory_mib` in MiB; `pci_*` are
    PCI generations and lane counts.
    """

    node: str
    source: Source
    index: int | None = None
    pci: str | None = None
    uuid: str | None = None
    product: str | None = None
    memory_mib: int | None = None
    numa: int | None = None
    cpus: str | None = None
    links: int | None = None
    links_seen: int | None = None
    link_gbps: float | None = None
    cluster_uuid: str | None = None
    clique_id: int | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None
    health_mask: int | None = None
    health_summary: str | None = None
    chassis: str | None = None
    slot: int | None = None
    tray: int | None = None
    host_id: int | None = None
    module_id: int | None = None
    fabric_guid: str | None = None
    vbios: str | None = None
    pci_gen: int | None = None
    pci_gen_max: int | None = None
    pci_width: int | None = None
    pci_width_max: int | None = None


class NicFact(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One port of an HCA as its host sees it. `name` is the RDMA device (`mlx5_0`), `netdev` the interface, `guid` 16
    hex digits, `gbps` the rate in Gb/s; `state` as in ACTIVE, DOWN, INIT, `phys_state` as in LinkUp, Polling, Disabled;
    `link_layer` InfiniBand or Ethernet. `leaf` and `leaf_port` are what LLDP or a fabric manager says is at the other
    end.
    """

    node: str
    source: Source
    name: str
    port: int = 1
    netdev: str | None = None
    pci: str | None = None
    numa: int | None = None
    guid: str | None = None
    gbps: float | None = None
    state: str | None = None
    phys_state: str | None = None
    link_layer: str | None = None
    firmware: str | None = None
    board_id: str | None = None
    hca_type: str | None = None
    leaf: str | None = None
    leaf_port: str | None = None


class PciFact(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One PCI function. `bdf` lower case; `parent` the bridge above it, empty for a root port; `pci_class` as sysfs
    writes it (`0x060400`), ids as `0x15b3`; speeds as sysfs writes them (`32.0 GT/s PCIe`), widths in lanes.
    """

    node: str
    source: Source
    bdf: str
    parent: str = ""
    numa: int | None = None
    pci_class: str | None = None
    vendor: str | None = None
    device: str | None = None
    subsystem_vendor: str | None = None
    subsystem_device: str | None = None
    speed: str | None = None
    speed_max: str | None = None
    width: int | None = None
    width_max: int | None = None


class PciRows(msgspec.Struct, frozen=True, eq=False):
    """PCI functions without a node, each with the line counted from the first. Trays of one kind have the very same
    rows, so they are one object, known by its identity.
    """

    facts: tuple[PciFact, ...]


class PciTable(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """All PCI functions of a node as one table lists them; `source` is its first row."""

    node: str
    source: Source
    rows: PciRows

    def facts(self) -> Iterator[PciFact]:
        """The functions, each with the node and its own line."""
        return (self.of_node(row) for row in self.rows.facts)

    def of_node(self, row: PciFact) -> PciFact:
        """One of the rows, with the node and its own line."""
        line = (self.source.line or 1) + (row.source.line or 0)
        source = Source(self.source.reader, self.source.file, line, row.source.text)
        return replace(row, node=self.node, source=source)


class SwitchFact(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A switch of the compute network by the name it goes by and, on InfiniBand, its GUID (16 hex digits)."""

    name: str
    source: Source
    guid: str | None = None
    ports: int | None = None
    lid: int | None = None
    model: str | None = None
    tier: int | None = None


class End(msgspec.Struct, frozen=True, gc=False):
    """One end of a cable. `kind` is switch, hca or other (SHARP aggregation nodes, routers); `owner` is the name of the
    switch or host; `device` the HCA within its host (`mlx5_0`, `HCA-5`), or the switch's port by name; `guid` is empty
    where there is none.
    """

    kind: str
    owner: str
    device: str
    port: int
    guid: str = ""


class CableFact(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A link as one end reports it. `width` in lanes (4), `speed` by its name (NDR, XDR), `gbps` width × lane rate;
    `state` as in Active, Down, Init. A cable whose other end nobody answers at has `b` None.
    """

    a: End
    b: End | None
    source: Source
    width: int | None = None
    speed: str | None = None
    gbps: float | None = None
    state: str | None = None
    phys_state: str | None = None
    width_max: int | None = None
    speed_max: str | None = None


class NvEnd(msgspec.Struct, frozen=True, gc=False):
    """A device on the NVLink fabric: kind gpu or switch, its uid, where it sits (chassis serial, slot, tray, and GPU or
    ASIC number), and the node's name where the fabric manager knows it. Numbers that were not said are -1.
    """

    kind: str
    uid: str
    chassis: str = ""
    slot: int = -1
    tray: int = -1
    device: int = -1
    node: str = ""
    health: str = ""


class NvPortFact(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One NVLink port as NMX reports it. `expectation`: discovered, expected, expected-inactive or unexpected."""

    end: NvEnd
    port: int
    source: Source
    domain: str = ""
    peer_uid: str = ""
    peer_port: int = -1
    logical: str | None = None
    physical: str | None = None
    rail: int | None = None
    plane: int | None = None
    cage: int | None = None
    expectation: str = "discovered"


@dataclass(slots=True)
class Facts:
    """All that readers said, in reading order. `findings` are what a reader found wrong with its own input."""

    hosts: list[HostFact] = field(default_factory=list)
    cpus: list[CpuFact] = field(default_factory=list)
    gpus: list[GpuFact] = field(default_factory=list)
    nics: list[NicFact] = field(default_factory=list)
    pci: list[PciFact] = field(default_factory=list)
    pci_tables: list[PciTable] = field(default_factory=list)
    switches: list[SwitchFact] = field(default_factory=list)
    cables: list[CableFact] = field(default_factory=list)
    nvports: list[NvPortFact] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: "Facts") -> None:
        """Take over everything another reading found."""
        self.hosts += other.hosts
        self.cpus += other.cpus
        self.gpus += other.gpus
        self.nics += other.nics
        self.pci += other.pci
        self.pci_tables += other.pci_tables
        self.switches += other.switches
        self.cables += other.cables
        self.nvports += other.nvports
        self.findings += other.findings

    def devices(self) -> Iterator[PciFact]:
        """Every PCI function, those of tables one by one."""
        return chain(self.pci, (fact for table in self.pci_tables for fact in table.facts()))
