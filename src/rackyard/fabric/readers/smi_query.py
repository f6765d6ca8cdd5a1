"""`nvidia-smi --query-gpu=… --format=csv[,noheader][,nounits]`: a row a GPU, in any order of fields.

The header names the fields; without one, the order is that of `collect.sh` (FIELDS).
"""

from dataclasses import dataclass
from functools import lru_cache

from rackyard.errors import SpecError, Where
from rackyard.fabric.facts import Facts, HostFact, Source
from rackyard.fabric.healthmask import health_row
from rackyard.fabric.readers.reader import Capture, Reader, text_of
from rackyard.fabric.readers.smi_fields import GPU_FIELDS, Convert, complaint, gpu_fact, said, unreachable
from rackyard.findings import Finding, Severity, Verdict

NAME = "nvidia-smi-query"

FIELDS = (
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "memory.total",
    "driver_version",
    "vbios_version",
    "serial",
    "pcie.link.gen.current",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "pcie.link.width.max",
    "fabric.state",
    "fabric.status",
    "fabric.cliqueId",
    "fabric.clusterUuid",
    "platform.chassis_serial_number",
    "platform.slot_number",
    "platform.tray_index",
    "platform.host_id",
    "platform.module_id",
    "platform.gpu_fabric_guid",
)
"""What collect.sh asks for, in its order."""

# Our short name for each field that is used. Old and new spellings of a field stand side by side.
_SHORT = {
    "index": "index",
    "uuid": "uuid",
    "gpu_uuid": "uuid",
    "name": "name",
    "gpu_name": "name",
    "pci.bus_id": "bus_id",
    "gpu_bus_id": "bus_id",
    "memory.total": "memory",
    "vbios_version": "vbios",
    "pcie.link.gen.current": "gen",
    "pcie.link.gen.gpucurrent": "gen",
    "pcie.link.gen.max": "gen_max",
    "pcie.link.width.current": "width",
    "pcie.link.width.max": "width_max",
    "fabric.state": "state",
    "fabric.status": "status",
    "fabric.cliqueid": "clique",
    "fabric.clusteruuid": "cluster",
    "fabric.health.summary": "summary",
    "platform.chassis_serial_number": "chassis",
    "platform.slot_number": "slot",
    "platform.tray_index": "tray",
    "platform.host_id": "host",
    "platform.module_id": "module",
    "platform.gpu_fabric_guid": "guid",
}
_HEALTH = "fabric.health."
_KNOWN = frozenset((*_SHORT, "driver_version", "serial", "hostname", "timestamp", "count", "compute_cap"))


@dataclass(frozen=True, slots=True)
class _Plan:
    """Which column holds what."""

    width: int
    gpu: tuple[tuple[int, str, Convert], ...]
    health: tuple[tuple[int, str], ...]
    driver: int | None
    hostname: int | None


def _names(line: str) -> tuple[str, ...]:
    """The fields that a header line names, lower case and without units."""
    return tuple(cell.partition("[")[0].strip().lower() for cell in line.split(","))


def _plan(names: tuple[str, ...]) -> _Plan:
    return _Plan(
        len(names),
        tuple((column, *GPU_FIELDS[_SHORT[name]]) for column, name in enumerate(names) if name in _SHORT),
        tuple(
            (column, name.removeprefix(_HEALTH))
            for column, name in enumerate(names)
            if name.startswith(_HEALTH) and health_row(name.removeprefix(_HEALTH))
        ),
        names.index("driver_version") if "driver_version" in names else None,
        names.index("hostname") if "hostname" in names else None,
    )


_DEFAULT = _plan(tuple(name.lower() for name in FIELDS))


@lru_cache(64)
def _header(line: str) -> _Plan | None:
    """The plan of a header line; None when the line is no header."""
    names = _names(line)
    return _plan(names) if _is_header(names) else None


def _is_header(names: tuple[str, ...]) -> bool:
    return any(name in _KNOWN or name.startswith(("fabric.", "platform.", "pcie.")) for name in names)


def _knows(head: str, file: str) -> bool:
    for line in head.split("\n", 8)[:8]:
        if not line.strip():
            continue
        if complaint(line):
            return True
        if "," not in line:
            return False
        cells = line.split(",")
        return _header(line) is not None or (len(cells) == len(FIELDS) and cells[1].strip().startswith("GPU-"))
    return False


def read(capture: Capture) -> Facts:
    """One GpuFact a row, and a HostFact with the driver. SpecError for a row that does not fit its header."""
    facts = Facts()
    plan: _Plan | None = None
    driver: HostFact | None = None
    for line, row in enumerate(text_of(capture).split("\n"), 1):
        if not row.strip():
            continue
        source = Source(NAME, capture.file, line, row)
        if complaint(row):
            facts.findings.append(unreachable(capture.node, source))
            continue
        if plan is None:
            plan = _header(row)
            if plan is not None:
                continue
            plan = _DEFAULT
        cells = row.split(",")
        if len(cells) != plan.width:
            raise _misfit(capture.file, line, len(cells), plan.width)
        node = capture.node or (cells[plan.hostname].strip() if plan.hostname is not None else "")
        found = {attribute: convert(cells[column]) for column, attribute, convert in plan.gpu}
        gpu = gpu_fact(node, source, found, {name: cells[column] for column, name in plan.health})
        if gpu is None:
            facts.findings.append(_nameless(node, source))
            continue
        facts.gpus.append(gpu)
        if driver is None and plan.driver is not None and (version := said(cells[plan.driver])):
            driver = HostFact(node=node, source=source, driver=version)
            facts.hosts.append(driver)
    return facts


def _misfit(file: str, line: int, found: int, wanted: int) -> SpecError:
    return SpecError(
        f"this row has {found} values where {wanted} fields were asked for",
        where=Where(file, line, 1),
        why="the file was cut short, or it has no header and other fields than `rackyard topo collect` asks for",
        fix="capture it again with --format=csv (without noheader), which names the fields",
    )


def _nameless(node: str, source: Source) -> Finding:
    return Finding(
        "fabric/gpu-nameless",
        Verdict.UNKNOWN,
        Severity.WARNING,
        node or source.file,
        "a GPU was reported without index, UUID or PCI address, so nothing is known of it",
        (source.evidence(),),
        "Ask for index, uuid and pci.bus_id; if they are asked for, nvidia-smi has lost the GPU.",
    )


READER = Reader(NAME, _knows, read)
