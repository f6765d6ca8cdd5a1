"""One host as a round of readings shows it, and what is remembered of earlier rounds. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rackyard.agent.reading import Reading
from rackyard.fabric.discover import Discovered, merge
from rackyard.fabric.discover.gpus import merged_gpus
from rackyard.fabric.discover.nics import merged_nics
from rackyard.fabric.facts import Facts, GpuFact, NicFact, PciFact
from rackyard.fabric.model import Node

_NVIDIA, _DISPLAY = "0x10de", "0x03"
"""PCI vendor and base class of a GPU (display controller; PCI Code and ID Assignment, class 03h)."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What earlier rounds saw: PCI addresses of GPUs, HCA ports that were up, and since when GPUs register with the
    NVLink fabric (seconds on any one clock; None while none does).
    """

    gpus: frozenset[str] = frozenset()
    ports: frozenset[tuple[str, int]] = frozenset()
    registering: float | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """What is known of the host now. `node` is None where no reader said anything; `functions` are its GPUs by PCI
    address as sysfs lists them; `nics` are the ports of the compute network.
    """

    name: str
    readings: Mapping[str, Reading]
    found: Discovered
    node: Node | None
    gpus: tuple[GpuFact, ...]
    nics: tuple[NicFact, ...]
    functions: Mapping[str, PciFact]
    facts: Facts = field(repr=False)

    def trouble(self, reader: str) -> Reading | None:
        """The reading of a reader that gave nothing."""
        reading = self.readings.get(reader)
        return reading if reading is not None and reading.facts is None else None


def host_of(name: str, readings: Sequence[Reading]) -> Host:
    """The host called `name`, from what its readers gave."""
    facts = Facts()
    for reading in readings:
        if reading.facts is not None:
            facts.add(reading.facts)
    found = merge(facts, name)
    node = found.site.node(name) if found.site.has_node(name) else None
    compute = {nic.name for nic in node.nics} if node else set()
    return Host(
        name=name,
        readings={reading.reader: reading for reading in readings},
        found=found,
        node=node,
        gpus=tuple(merged_gpus(name, found.facts.gpus, [])),
        nics=tuple(nic for nic in merged_nics(name, found.facts.nics, []) if nic.name in compute),
        functions={pci.bdf: pci for pci in facts.devices() if is_gpu(pci)},
        facts=found.facts,
    )


def is_gpu(pci: PciFact) -> bool:
    """Whether a PCI function is one of NVIDIA's GPUs."""
    return pci.vendor == _NVIDIA and (pci.pci_class or "").startswith(_DISPLAY)


def is_up(nic: NicFact) -> bool | None:
    """Whether a port is up; None when nobody said."""
    if nic.state is None:
        return None
    return nic.state.upper() == "ACTIVE" and nic.phys_state in (None, "LinkUp")


def registers(gpu: GpuFact) -> bool:
    """Whether a GPU is about to join the NVLink fabric, as all are for a while after a boot."""
    return gpu.fabric_state in ("not-started", "in-progress")


def remember(memory: Memory, host: Host, now: float) -> Memory:
    """The memory after this round."""
    registering = memory.registering
    if host.trouble("nvml") is None:
        registering = (now if registering is None else registering) if any(map(registers, host.gpus)) else None
    return replace(
        memory,
        gpus=memory.gpus | frozenset(host.functions),
        ports=memory.ports | frozenset((nic.name, nic.port) for nic in host.nics if is_up(nic)),
        registering=registering,
    )
