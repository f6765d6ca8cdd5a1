"""The GPUs of a node: what several captures say of one GPU becomes one record, and its health follows from that."""

import re
from collections.abc import Sequence
from functools import partial

from rackyard.fabric.discover.records import merge
from rackyard.fabric.facts import GpuFact
from rackyard.fabric.healthmask import healthy
from rackyard.fabric.model import Gpu, Health
from rackyard.findings import Finding

_KIND = re.compile(r"\b(?:NVIDIA|Tesla|AMD|Instinct|Graphics Device)\b\s*")


def merged_gpus(node: str, records: Sequence[GpuFact], findings: list[Finding]) -> list[GpuFact]:
    """One record for each GPU of a node, in the order of index, then of PCI address."""
    groups: list[list[GpuFact]] = []
    known: dict[str | int, list[GpuFact]] = {}  # UUIDs, addresses and indexes can't be taken for one another
    for record in records:
        keys = [key for key in (record.uuid, record.pci, record.index) if key is not None]
        group = next((known[key] for key in keys if key in known), None)
        if group is None:
            group = []
            groups.append(group)
        group.append(record)
        for key in keys:
            known.setdefault(key, group)
    found = [
        merge(group, partial(_subject, node, group), findings, also=("health_summary",)) if len(group) > 1 else group[0]
        for group in groups
    ]
    return sorted(found, key=lambda gpu: (999 if gpu.index is None else gpu.index, gpu.pci or "", gpu.uuid or ""))


def gpu_of(place: int, fact: GpuFact, pci_numa: int | None) -> Gpu:
    """The GPU that a merged record describes. `place` stands in for an index nobody gave, and `pci_numa`, the NUMA node
    of its PCI function, for one that no GPU tool gave.
    """
    numa = fact.numa if fact.numa is not None else pci_numa
    return Gpu(
        index=place if fact.index is None else fact.index,
        kind=kind_of(fact.product),
        uuid=fact.uuid or "",
        pci=fact.pci or "",
        numa=-1 if numa is None else numa,
        nvlinks=-1 if fact.links is None else fact.links,
        memory_gib=round((fact.memory_mib or 0) / 1024, 1),
        health=health_of(fact),
    )


def health_of(fact: GpuFact) -> Health:
    """A GPU is healthy when something was looked at and none of it is amiss; with nothing looked at it is unknown."""
    links, seen = fact.links, fact.links_seen
    if links == 0 and seen != 0:
        return Health.DOWN
    signs = [
        links >= seen if links is not None and seen is not None else None,
        healthy(fact.health_mask) if fact.health_mask is not None else None,
        fact.fabric_state in ("completed", "not-supported") if fact.fabric_state is not None else None,
        fact.health_summary.lower() == "healthy" if fact.health_summary and fact.health_mask is None else None,
    ]
    looked_at = [sign for sign in signs if sign is not None]
    if not looked_at:
        return Health.UNKNOWN
    return Health.HEALTHY if all(looked_at) else Health.DEGRADED


def kind_of(product: str | None) -> str:
    """`NVIDIA GB300` → `GB300`, `NVIDIA H100 80GB HBM3` → `H100`, `NVIDIA A100-SXM4-80GB` → `A100`."""
    words = _KIND.sub("", product or "").replace("-", " ").split()
    return words[0] if words else "unknown"


def _subject(node: str, group: Sequence[GpuFact]) -> str:
    index = next((record.index for record in group if record.index is not None), None)
    return f"node {node}, GPU {group[0].pci or group[0].uuid or '?' if index is None else index}"
