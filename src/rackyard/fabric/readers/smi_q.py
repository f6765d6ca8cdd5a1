"""`nvidia-smi -q` as text. Sections nest by indentation; the width of columns and the rows depend on the driver."""

import re
from typing import Any

from rackyard.errors import SpecError, Where
from rackyard.fabric.facts import Facts, GpuFact, HostFact, Source
from rackyard.fabric.healthmask import health_row
from rackyard.fabric.readers.reader import Capture, Reader, text_of
from rackyard.fabric.readers.smi_fields import GPU_FIELDS, bus_id, complaint, gpu_fact, number, said, unreachable
from rackyard.findings import Finding, Severity, Verdict

NAME = "nvidia-smi-q"

# Where a value stands (section / row, lower case) and our short name for it, over several generations of drivers.
ROWS = {
    "product name": "name",
    "gpu uuid": "uuid",
    "vbios version": "vbios",
    "module id": "module",
    "gpu module id": "module",
    "fb memory usage/total": "memory",
    "pci/bus id": "bus_id",
    "pci/gpu link info/pcie generation/current": "gen",
    "pci/gpu link info/pcie generation/device current": "gen",
    "pci/gpu link info/pcie generation/max": "gen_max",
    "pci/gpu link info/link width/current": "width",
    "pci/gpu link info/link width/max": "width_max",
    "platform info/chassis serial number": "chassis",
    "platform info/slot number": "slot",
    "platform info/tray index": "tray",
    "platform info/host id": "host",
    "platform info/module id": "module",
    "platform info/gpu fabric guid": "guid",
    "fabric/state": "state",
    "fabric/status": "status",
    "fabric/cliqueid": "clique",
    "fabric/clusteruuid": "cluster",
    "fabric/health/summary": "summary",
}
_HEALTH = "fabric/health/"

_GPU = re.compile(r"GPU ((?:0x)?[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*$")
_LINE = re.compile(r"( *)(\S.*?)(?:\s*: (.*)|\s+:)?$")
_FIRST = re.compile(r"^=+ *NVSMI LOG *=+|^GPU [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\s*\n +\S[^\n]*", re.M)
_DEEPEST = 12


def _knows(head: str, file: str) -> bool:
    return ("NVSMI LOG" in head or "GPU 0" in head) and _FIRST.search(head) is not None


class _Block:
    """The rows of one GPU as they are read."""

    def __init__(self, address: str, source: Source) -> None:
        self.source = source
        self.found: dict[str, Any] = {"pci": bus_id(address)}
        self.health: dict[str, str] = {}
        self.sections: list[tuple[int, str]] = []

    def row(self, indent: int, name: str, value: str | None) -> None:
        """Take a row, or with `value` None the title of a section."""
        while self.sections and self.sections[-1][0] >= indent:
            self.sections.pop()
        name = name.lower()
        if value is None:
            if len(self.sections) < _DEEPEST:
                self.sections.append((indent, name))
            return
        path = "/".join([title for _, title in self.sections] + [name])
        if path.startswith(_HEALTH) and health_row(name):
            self.health[name] = value
        elif short := ROWS.get(path):
            attribute, convert = GPU_FIELDS[short]
            if (told := convert(value)) is not None:
                self.found[attribute] = told

    def fact(self, node: str) -> GpuFact | None:
        return gpu_fact(node, self.source, self.found, self.health)


def read(capture: Capture) -> Facts:
    """A GpuFact for each GPU block, a HostFact with the driver. SpecError where GPUs are promised, none described."""
    facts = Facts()
    block: _Block | None = None
    blocks: list[_Block] = []
    attached: tuple[int, Source] | None = None
    for line, row in enumerate(text_of(capture).split("\n"), 1):
        if match := _GPU.match(row):
            block = _Block(match[1], Source(NAME, capture.file, line, row))
            blocks.append(block)
            continue
        match = _LINE.match(row.replace("\t", "    "))
        if match is None:
            continue
        if block is not None and match[1]:
            value = match[3] if match[3] is not None else ("" if row.rstrip().endswith(":") else None)
            block.row(len(match[1]), match[2], value)
        elif match[2] == "Driver Version" and (driver := said(match[3] or "")):
            source = Source(NAME, capture.file, line, row)
            facts.hosts.append(HostFact(node=capture.node, source=source, driver=driver))
        elif match[2] == "Attached GPUs":
            attached = (number(match[3] or "") or 0, Source(NAME, capture.file, line, row))
        elif complaint(row):
            facts.findings.append(unreachable(capture.node, Source(NAME, capture.file, line, row)))
    facts.gpus += [fact for block in blocks if (fact := block.fact(capture.node)) is not None]
    if attached and attached[0] > len(facts.gpus):
        facts.findings.append(missing(capture, attached[1], attached[0], len(facts.gpus)))
    return facts


def missing(capture: Capture, source: Source, attached: int, described: int) -> Finding:
    """The finding for a log that promises more GPUs than it describes. SpecError when it describes none."""
    if not described:
        raise SpecError(
            f"{attached} GPUs are attached, but the log describes none",
            where=Where(capture.file, source.line, 1),
            why="the file was cut short",
            fix="capture the whole output of `nvidia-smi -q`",
        )
    return Finding(
        "fabric/capture-cut",
        Verdict.UNKNOWN,
        Severity.WARNING,
        capture.node or capture.file,
        f"{attached} GPUs are attached, but only {described} described",
        (source.evidence(),),
        "Capture the whole output of `nvidia-smi -q`; if it is whole, nvidia-smi could not reach the others.",
    )


READER = Reader(NAME, _knows, read)
