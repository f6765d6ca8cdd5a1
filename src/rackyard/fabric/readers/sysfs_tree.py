"""A tree of sysfs files at any root: PCI functions, HCAs, interfaces and CPUs.

The tree is a mapping from path to text. Under its real path (`devices/pci0002:00/0002:00:00.0/…`) a file says which
bridges stand above it; under `class/` and `bus/` it does not, unless the symbolic link there is known (`links`, path to
target). Trees are found by their shape, wherever their root is: a tar of `/sys/class/infiniband` alone is a tree.

As a capture, a tree is text: FIRST, then one line a file, `path<TAB>content`, a link as `path<TAB>-> target`; line
breaks within a content are `\\n`.
"""

import re
from collections.abc import Iterable, Mapping

from rackyard.fabric.facts import CpuFact, Facts, NicFact, PciFact, Source
from rackyard.fabric.readers.reader import Capture, Reader, text_of
from rackyard.fabric.readers.sysfs_values import (
    BDF,
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

NAME = "sysfs-tree"
FIRST = "#rackyard-sysfs-tree 1"

PCI_FILES = (
    "class",
    "vendor",
    "device",
    "subsystem_vendor",
    "subsystem_device",
    "numa_node",
    "current_link_speed",
    "max_link_speed",
    "current_link_width",
    "max_link_width",
)
HCA_FILES = ("node_guid", "board_id", "hca_type", "fw_ver")
PORT_FILES = ("rate", "state", "phys_state", "link_layer")
CPUINFO = "proc/cpuinfo"
"""Where a tree keeps /proc/cpuinfo."""

_PCI = re.compile(rf"(?:^|/)({BDF})/({'|'.join(PCI_FILES)})$")
_PORT = re.compile(rf"(?:^|/)([^/]+)/ports/(\d{{1,3}})/({'|'.join(PORT_FILES)})$")
_HCA = re.compile(rf"(?:^|/)([^/]+)/({'|'.join(HCA_FILES)})$")
_NET = re.compile(rf"({BDF})/(?:[^/:]+/)?net/([^/]+)/dev_port$")
_NODE = re.compile(r"(?:^|/)node/node(\d{1,5})/cpulist$")
_ANY_BDF = re.compile(BDF)
_LINKED = re.compile(r"(?:^|/)(?:bus/pci/devices|class/infiniband|class/net)/([^/]+)$")


def is_tree(names: Iterable[str]) -> bool:
    """Whether these paths are of a sysfs tree: one is enough that only sysfs has."""
    return any(
        name.count("/") > 1 and (_PORT.search(name) or _PCI.search(name) or _NODE.search(name)) is not None
        for name in names
    )


def wanted(path: str) -> bool:
    """Whether a reader uses this file. The rest of sysfs (counters, firmware tables) is not looked at."""
    return path == CPUINFO or any(pattern.search(path) for pattern in (_PCI, _PORT, _HCA, _NET, _NODE))


def flat_tree(files: Iterable[tuple[str, bytes]], links: Mapping[str, str]) -> bytes:
    """The tree as one capture; files that no reader uses are left out."""
    lines = [FIRST]
    for path, content in files:
        if wanted(path):
            text = content.decode("utf-8", "replace").rstrip("\n").replace("\\", "\\\\")
            lines.append(f"{_plain(path)}\t{text.replace(chr(10), chr(92) + 'n')}")
    lines += [f"{_plain(path)}\t-> {_plain(target)}" for path, target in links.items() if _LINKED.search(path)]
    return "\n".join(lines).encode()


def _plain(path: str) -> str:
    return path.replace("\n", "?").replace("\t", "?")


def _knows(head: str, file: str) -> bool:
    return head.startswith(FIRST)


def read(capture: Capture) -> Facts:
    """The facts of a tree kept as one capture."""
    tree = _Tree(capture.node, capture.file)
    for line, row in enumerate(text_of(capture).split("\n"), 1):
        path, tab, text = row.partition("\t")
        if tab and text.startswith("-> "):
            tree.link(path, text[3:])
        elif tab:
            tree.file(path, text.replace("\\n", "\n").strip() if path == CPUINFO else text.strip(), line)
    return tree.facts()


def facts_of(
    node: str, files: Mapping[str, str], links: Mapping[str, str] | None = None, *, origin: str = "/sys"
) -> Facts:
    """The facts of a tree that was just walked. `origin` is its root: a fact names the file it was read from."""
    tree = _Tree(node, origin, walked=True)
    for path, target in (links or {}).items():
        tree.link(path, target)
    for path, text in files.items():
        tree.file(path, text.strip(), None)
    return tree.facts()


class _Tree:
    """A tree being read: the texts by what they are of, and where each was first seen."""

    def __init__(self, node: str, origin: str, *, walked: bool = False) -> None:
        self.node, self.origin, self.walked = node, origin, walked
        self.pci: dict[str, dict[str, str]] = {}
        self.parents: dict[str, str] = {}
        self.ports: dict[tuple[str, int], dict[str, str]] = {}
        self.hcas: dict[str, dict[str, str]] = {}
        self.places: dict[str, str] = {}
        self.nets: dict[str, dict[str, int]] = {}
        self.cpus: dict[int, str] = {}
        self.cpuinfo = ""
        self.seen: dict[object, Source] = {}

    def file(self, path: str, text: str, line: int | None) -> None:
        """Take a file's content."""
        if match := _PCI.search(path):
            bdf = match[1].lower()
            self.pci.setdefault(bdf, {})[match[2]] = text
            self._above(bdf, path[: match.start()])
            self._note(bdf, path, text, line)
        elif match := _PORT.search(path):
            key = (match[1], int(match[2]))
            self.ports.setdefault(key, {})[match[3]] = text
            self._place(match[1], path[: match.start(1)])
            self._note(key, path, text, line)
        elif match := _HCA.search(path):
            self.hcas.setdefault(match[1], {})[match[2]] = text
            self._place(match[1], path[: match.start(1)])
        elif match := _NET.search(path):
            self.nets.setdefault(match[1].lower(), {})[match[2]] = whole(text) or 0
        elif match := _NODE.search(path):
            self.cpus[int(match[1])] = text
            self._note(int(match[1]), path, text, line)
        elif path == CPUINFO:
            self.cpuinfo = text

    def link(self, path: str, target: str) -> None:
        """Take a symbolic link: where a device of a class or bus folder really is."""
        match = _LINKED.search(path)
        found = _ANY_BDF.findall(target)
        if match is None or not found:
            return
        name = match[1]
        if bdf_of(name):
            self._above(name.lower(), target[: target.rfind(found[-1])])
        elif "/net/" in path or path.startswith("net/"):
            self.nets.setdefault(found[-1].lower(), {}).setdefault(name, 0)
        else:
            self.places[name] = found[-1].lower()

    def _above(self, bdf: str, prefix: str) -> None:
        found = _ANY_BDF.findall(prefix)
        if found:
            self.parents[bdf] = found[-1].lower()

    def _place(self, hca: str, prefix: str) -> None:
        if hca not in self.places and (found := _ANY_BDF.findall(prefix)):
            self.places[hca] = found[-1].lower()

    def _note(self, key: object, path: str, text: str, line: int | None) -> None:
        if key not in self.seen:
            file = f"{self.origin}/{path}" if self.walked else self.origin
            shown = text[:200] if self.walked else f"{path}: {text[:200]}"
            self.seen[key] = Source(NAME, file, line, shown)

    def facts(self) -> Facts:
        """What was taken, parents before children as paths have it."""
        facts = Facts()
        facts.pci += [self._pci(bdf, texts) for bdf, texts in self.pci.items()]
        facts.nics += [self._nic(key, texts) for key, texts in sorted(self.ports.items())]
        arch, vendor, family, model = processor(self.cpuinfo)
        for numa, listed in sorted(self.cpus.items()):
            if (cpus := cpus_of(listed)) is not None:
                facts.cpus.append(
                    CpuFact(
                        node=self.node,
                        source=self.seen[numa],
                        numa=numa,
                        cpus=cpus,
                        arch=arch,
                        vendor=vendor,
                        family=family,
                        model=model,
                    )
                )
        return facts

    def _pci(self, bdf: str, texts: dict[str, str]) -> PciFact:
        return PciFact(
            node=self.node,
            source=self.seen[bdf],
            bdf=bdf,
            parent=self.parents.get(bdf, ""),
            numa=whole(texts.get("numa_node", "")),
            pci_class=hex_of(texts.get("class", "")),
            vendor=hex_of(texts.get("vendor", "")),
            device=hex_of(texts.get("device", "")),
            subsystem_vendor=hex_of(texts.get("subsystem_vendor", "")),
            subsystem_device=hex_of(texts.get("subsystem_device", "")),
            speed=speed_of(texts.get("current_link_speed", "")),
            speed_max=speed_of(texts.get("max_link_speed", "")),
            width=lanes_of(texts.get("current_link_width", "")),
            width_max=lanes_of(texts.get("max_link_width", "")),
        )

    def _nic(self, key: tuple[str, int], texts: dict[str, str]) -> NicFact:
        name, port = key
        device, pci = self.hcas.get(name, {}), self.places.get(name)
        nets = [(number, net) for net, number in self.nets.get(pci or "", {}).items()]
        return NicFact(
            node=self.node,
            source=self.seen[key],
            name=name,
            port=port,
            netdev=netdev_of(port, nets),
            pci=pci,
            numa=whole(self.pci.get(pci or "", {}).get("numa_node", "")),
            guid=guid_of(device.get("node_guid", "")),
            gbps=gbps_of(texts.get("rate", "")),
            state=state_of(texts.get("state", "")),
            phys_state=state_of(texts.get("phys_state", "")),
            link_layer=texts.get("link_layer") or None,
            firmware=device.get("fw_ver") or None,
            board_id=device.get("board_id") or None,
            hca_type=device.get("hca_type") or None,
        )


def processor(cpuinfo: str) -> tuple[str | None, str | None, int | None, int | None]:
    """Architecture, and on x86 vendor, family and model, from the first processor of /proc/cpuinfo."""
    said: dict[str, str] = {}
    for line in cpuinfo.split("\n"):
        key, colon, value = line.partition(":")
        if colon:
            said.setdefault(key.strip(), value.strip())
        elif said and not line.strip():
            break
    if "vendor_id" in said:
        return "x86_64", said["vendor_id"], whole(said.get("cpu family", "")), whole(said.get("model", ""))
    return arch_of("aarch64") if "CPU implementer" in said else None, None, None, None


READER = Reader(NAME, _knows, read)
