"""`nvidia-smi -q -x`: the same log as XML.

Read with expat as a stream. Its DTD line is allowed and never followed; no entity may be declared, so none can grow.
"""

import re
from typing import Any
from xml.parsers import expat

from rackyard.errors import SpecError, Where
from rackyard.fabric.facts import Facts, HostFact, Source
from rackyard.fabric.healthmask import health_row
from rackyard.fabric.readers.reader import Capture, Reader
from rackyard.fabric.readers.smi_fields import GPU_FIELDS, bus_id, gpu_fact, number, said
from rackyard.fabric.readers.smi_q import missing

NAME = "nvidia-smi-xml"

# Path below <gpu>, lower case, and our short name; several generations of the DTD (nvsmi_device_v9 … v13).
PATHS = {
    "product_name": "name",
    "uuid": "uuid",
    "vbios_version": "vbios",
    "module_id": "module",
    "gpu_module_id": "module",
    "fb_memory_usage/total": "memory",
    "pci/pci_bus_id": "bus_id",
    "pci/pci_gpu_link_info/pcie_gen/current_link_gen": "gen",
    "pci/pci_gpu_link_info/pcie_gen/device_current_link_gen": "gen",
    "pci/pci_gpu_link_info/pcie_gen/max_link_gen": "gen_max",
    "pci/pci_gpu_link_info/link_widths/current_link_width": "width",
    "pci/pci_gpu_link_info/link_widths/max_link_width": "width_max",
    "platforminfo/chassis_serial_number": "chassis",
    "platforminfo/slot_number": "slot",
    "platforminfo/tray_index": "tray",
    "platforminfo/host_id": "host",
    "platforminfo/module_id": "module",
    "platforminfo/gpu_fabric_guid": "guid",
    "fabric/state": "state",
    "fabric/status": "status",
    "fabric/cliqueid": "clique",
    "fabric/clusteruuid": "cluster",
    "fabric/health/summary": "summary",
}
_HEALTH = "fabric/health/"
_DEEPEST = 32
_LONGEST = 1024
_FIRST = re.compile(r"<!DOCTYPE nvidia_smi_log\b|<nvidia_smi_log\b")


def _knows(head: str, file: str) -> bool:
    return "nvidia_smi_log" in head and _FIRST.search(head) is not None


class _Log:
    """The log being parsed: where in the tree we are, and what the present GPU has said."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.facts = Facts()
        self.path: list[str] = []
        self.text: list[str] = []
        self.length = 0
        self.found: dict[str, Any] = {}
        self.health: dict[str, str] = {}
        self.gpu = Source(NAME, capture.file)
        self.attached: tuple[int, Source] | None = None
        self.parser = expat.ParserCreate("utf-8")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.EntityDeclHandler = self.entity

    def entity(self, name: str, *_: object) -> None:
        raise self.error(
            f"the file declares the entity {name[:80]}", "nvidia-smi declares none, and none is expanded here"
        )

    def error(self, what: str, why: str) -> SpecError:
        where = Where(self.capture.file, self.parser.CurrentLineNumber, self.parser.CurrentColumnNumber + 1)
        return SpecError(what, where=where, why=why, fix="capture it again with `nvidia-smi -q -x`")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self.path) >= _DEEPEST:
            raise self.error(f"elements are nested more than {_DEEPEST} deep", "nvidia-smi nests six deep")
        self.path.append(name.lower())
        self.text.clear()
        self.length = 0
        if len(self.path) == 2 and self.path[1] == "gpu":
            address = attributes.get("id", "")
            line = f'<gpu id="{address}">'
            self.gpu = Source(NAME, self.capture.file, self.parser.CurrentLineNumber, line)
            self.found, self.health = {"pci": bus_id(address)}, {}

    def characters(self, text: str) -> None:
        if self.length < _LONGEST:
            self.text.append(text)
            self.length += len(text)

    def end(self, name: str) -> None:
        value = "".join(self.text).strip()
        self.text.clear()
        if len(self.path) > 2 and self.path[1] == "gpu":
            self.value("/".join(self.path[2:]), value)
        elif len(self.path) == 2:
            self.top(self.path[1], value)
        self.path.pop()

    def value(self, path: str, value: str) -> None:
        if path.startswith(_HEALTH) and health_row(path.removeprefix(_HEALTH)):
            self.health[path.removeprefix(_HEALTH)] = value
        elif short := PATHS.get(path):
            attribute, convert = GPU_FIELDS[short]
            if (told := convert(value)) is not None:
                self.found[attribute] = told

    def top(self, name: str, value: str) -> None:
        node, file = self.capture.node, self.capture.file
        source = Source(NAME, file, self.parser.CurrentLineNumber, f"<{name}>{value}</{name}>")
        if name == "gpu":
            if fact := gpu_fact(node, self.gpu, self.found, self.health):
                self.facts.gpus.append(fact)
        elif name == "driver_version" and (driver := said(value)):
            self.facts.hosts.append(HostFact(node=node, source=source, driver=driver))
        elif name == "attached_gpus":
            self.attached = (number(value) or 0, source)


def read(capture: Capture) -> Facts:
    """A GpuFact for each <gpu>, a HostFact with the driver. SpecError with line and column for malformed XML."""
    log = _Log(capture)
    try:
        log.parser.Parse(capture.data, True)
    except expat.ExpatError as error:
        raise log.error("the XML is not well formed", expat.ErrorString(error.code)) from None
    if log.attached and log.attached[0] > len(log.facts.gpus):
        log.facts.findings.append(missing(capture, log.attached[1], log.attached[0], len(log.facts.gpus)))
    return log.facts


READER = Reader(NAME, _knows, read)
