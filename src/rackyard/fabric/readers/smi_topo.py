"""`nvidia-smi topo -m`: which GPUs of a node reach each other over NVLink, and their CPUs and NUMA node.

The relation of a NIC to a GPU is not read: on Grace-Blackwell every NIC is SYS from every GPU, whatever it hangs on
(facts: topology §0.3); sysfs says it. Terminal colours, prompts, fences of Markdown and a cut table don't matter. A
second, different table in one file is taken to be of another host, `<node>#2`.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rackyard.fabric.facts import Facts, GpuFact, NicFact, Source
from rackyard.fabric.readers.reader import Capture, Reader, text_of

NAME = "nvidia-smi-topo"

MOST_LINKS = 18
"""NVLinks of the GPU that has most (H100 to GB300: 18; NVIDIA's architecture papers). Where a row's bonds add up to
more, the GPUs are behind NVSwitches, and each bond counts all links of a GPU; else several bonds are several links.
"""

_BONDS = {f"NV{count}": count for count in range(1, 100)}
_WORDS = frozenset(("X", "SYS", "NODE", "PHB", "PXB", "PIX", "SOC", "N/A", *_BONDS))
_DEVICE = re.compile(r"GPU\d{1,3}|NIC\d{1,3}|\w+_\d{1,3}")
_NAMED = re.compile(r"GPU\d")
_EXTRA = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID")
_LEGEND = re.compile(r"NIC\d{1,3}:")
_LIST = re.compile(r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*")


@dataclass(slots=True)
class _Table:
    """A matrix: the devices that are columns, the columns after them, the rows, and the NICs' names with lines."""

    devices: list[str]
    extras: list[str]
    rows: list[tuple[int, str, list[str]]] = field(default_factory=list)
    nics: list[tuple[int, str, str]] = field(default_factory=list)


def _knows(head: str, file: str) -> bool:
    return _NAMED.search(head) is not None and _shows(head)


@lru_cache(64)
def _shows(head: str) -> bool:
    return any(
        _is_gpu(cells[0]) and _WORDS.issuperset(cells[1 : 1 + len(table.devices)])
        for table in _tables(head)
        for _, _, cells in table.rows
    )


def _is_gpu(device: str) -> bool:
    return device.startswith("GPU") and device[3:].isdecimal()


def read(capture: Capture) -> Facts:
    """A GpuFact for each row of a GPU, a NicFact for each NIC's name."""
    facts = Facts()
    text = text_of(capture)
    gpus, nics = _remembered(text) if len(text) < _COMMON else _said(text)
    nodes = {place: f"{capture.node}#{place + 1}" if place else capture.node for place, *_ in (*gpus, *nics)}
    for place, line, row, said in gpus:
        facts.gpus.append(GpuFact(node=nodes[place], source=Source(NAME, capture.file, line, row), **said))
    for place, line, row, name in nics:
        facts.nics.append(NicFact(node=nodes[place], source=Source(NAME, capture.file, line, row), name=name))
    return facts


_COMMON = 16 * 1024

_Gpus = list[tuple[int, int, str, dict[str, Any]]]
_Nics = list[tuple[int, int, str, str]]


@lru_cache(64)
def _remembered(text: str) -> tuple[_Gpus, _Nics]:
    """The same as `_said`: the matrix holds no serial numbers, so all trays of a kind print the same one."""
    return _said(text)


def _said(text: str) -> tuple[_Gpus, _Nics]:
    """What GPUs and NICs are in a text: number of the table (from 0), line, that line's text, and what it says."""
    seen: list[list[list[str]]] = []
    gpus: _Gpus = []
    nics: _Nics = []
    for table in _tables(text):
        cells = [row[2] for row in table.rows]
        if cells not in seen:
            place = len(seen)
            seen.append(cells)
            gpus += [
                (place, line, row, _gpu(table, row, found)) for line, row, found in table.rows if _is_gpu(found[0])
            ]
            nics += [(place, *nic) for nic in table.nics]
    return gpus, nics


def _tables(text: str) -> list[_Table]:
    """The matrices in a text; those without a row are left out."""
    tables: list[_Table] = []
    names: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
        cells = line.split()
        if len(cells) < 2 or not _DEVICE.match(cells[0]):
            continue
        if cells[0].startswith("GPU") and (cells[1][:3] in ("GPU", "NIC", "CPU") or _DEVICE.fullmatch(cells[1])):
            extras = _EXTRA.findall(line)
            tables.append(_Table(_EXTRA.sub(" ", line).split(), extras))
            names = set()
        elif tables and cells[1] in _WORDS and _DEVICE.fullmatch(cells[0]):
            tables[-1].rows.append((number, line, cells))
            if not cells[0].startswith(("GPU", "NIC")):  # older drivers head the rows with the names themselves
                cells = [cells[0], cells[0]]
        if (
            tables
            and len(cells) == 2
            and (_LEGEND.fullmatch(cells[0]) or cells[0] == cells[1])
            and cells[1] not in names
        ):
            names.add(cells[1])
            tables[-1].nics.append((number, line, cells[1]))
    return [table for table in tables if table.rows]


def _gpu(table: _Table, line: str, cells: list[str]) -> dict[str, Any]:
    """What a GPU's row says, as attributes of GpuFact."""
    count, name = len(table.devices), cells[0]
    bonds = cells[1 : 1 + count]
    whole = name in table.devices and len(bonds) == count and _WORDS.issuperset(bonds)
    named = _extras(table, line, cells[1 + count :]) if whole else {}
    peers = [bond for device, bond in zip(table.devices, bonds, strict=False) if device[:3] == "GPU" and device != name]
    cpus = named.get("CPU Affinity", "")
    return {
        "index": int(name[3:]),
        "links": _links(peers) if whole else None,
        "numa": _numa(named),
        "cpus": cpus if _LIST.fullmatch(cpus) else None,
    }


def _links(peers: list[str]) -> int | None:
    """NVLinks of a GPU by its bonds; None where the table leaves it open."""
    if not peers or "N/A" in peers:
        return None
    bonds = [_BONDS[peer] for peer in peers if peer in _BONDS]
    if not bonds:
        return 0
    return max(bonds) if len(bonds) == 1 or sum(bonds) > MOST_LINKS else None


def _extras(table: _Table, line: str, rest: list[str]) -> dict[str, str]:
    """The columns after the devices by name. Where some are empty, only tabs tell which."""
    if len(rest) == len(table.extras):
        return dict(zip(table.extras, rest, strict=True))
    cells = [cell.strip() for cell in line.split("\t")]
    at = 1 + len(table.devices)
    return dict(zip(table.extras[:2], cells[at : at + 2], strict=False))


def _numa(named: dict[str, str]) -> int | None:
    """The NUMA node of the GPU's CPUs. On Grace the list goes on with GPU memory nodes; those with CPUs come first."""
    listed = named.get("NUMA Affinity", "")
    if named.get("GPU NUMA ID", "").isdecimal() and _LIST.fullmatch(listed):
        listed = re.split(r"[,-]", listed)[0]
    return int(listed) if listed.isdecimal() and len(listed) < 6 else None


READER = Reader(NAME, _knows, read)
