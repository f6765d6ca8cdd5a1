"""The GPUs of a node: what several captures say of one GPU becomes one record, and its health follows from that."""

import re
from collections.abc import Sequence
from functools import lru_cache, partial

from msgspec.structs import replace

from rackyard.fabric import kinds
from rackyard.fabric.discover.records import contradiction, merge, trust
from rackyard.fabric.facts import GpuFact
from rackyard.fabric.healthmask import healthy, status_good, summary_good
from rackyard.fabric.model import Gpu, Health
from rackyard.findings import Finding

_KIND = re.compile(r"\b(?:NVIDIA|Tesla|AMD|Instinct|Graphics Device)\b\s*")


def merged_gpus(node: str, records: Sequence[GpuFact], findings: list[Finding]) -> list[GpuFact]:
    """One record for each GPU of a node, in the order of index, then of PCI address."""
    groups = same_gpu(records)
    found = [
        merge(group, partial(_subject, node, group), findings, also=("health_summary",)) if len(group) > 1 else group[0]
        for group in groups
    ]
    if len({gpu.index for gpu in found}) < len(found):
        found = _one_each(node, found, findings)
    return sorted(found, key=lambda gpu: (999 if gpu.index is None else gpu.index, gpu.pci or "", gpu.uuid or ""))


def _one_each(node: str, gpus: Sequence[GpuFact], findings: list[Finding]) -> list[GpuFact]:
    """The GPUs, an index that two of them claim left to the one whose source is trusted more."""
    owners: dict[int, GpuFact] = {}
    found = []
    for gpu in sorted(gpus, key=lambda gpu: trust(gpu.source.reader)):
        owner = gpu if gpu.index is None else owners.setdefault(gpu.index, gpu)
        if owner is not gpu:
            said = [f"{one.source.reader} says it is {one.pci or one.uuid}" for one in (owner, gpu)]
            subject = f"node {node}, GPU {gpu.index}"
            findings.append(
                contradiction(subject, f"two GPUs of one index: {', '.join(said)}", (owner.source, gpu.source))
            )
            found.append(replace(gpu, index=None))
        else:
            found.append(gpu)
    return found


def same_gpu(records: Sequence[GpuFact]) -> list[list[GpuFact]]:
    """The records of each GPU of a node. They are of one GPU when they share the PCI address, else the UUID, else the
    index; those with an address come first in it, then those with a UUID.
    """
    # Those that say most about which GPU they are of come first: a bare index then finds the right one.
    ordered = [record for record in records if record.pci is not None]
    if len(ordered) < len(records):
        ordered += [record for record in records if record.pci is None and record.uuid is not None]
        ordered += [record for record in records if record.pci is None and record.uuid is None]
    groups: list[list[GpuFact]] = []
    known: dict[str | int | None, list[GpuFact]] = {}  # UUIDs, addresses and indexes can't be taken for one another
    for record in ordered:
        pci, uuid, index = record.pci, record.uuid, record.index
        group = known.get(pci)
        if group is None and uuid in known and _may_be_at(known[uuid], pci):
            group = known[uuid]
        if group is None and index in known and _may_be_at(known[index], pci) and _may_have(known[index], uuid):
            group = known[index]
        if group is None:
            groups.append(group := [])
        group.append(record)
        for key in (pci, uuid, index):
            if key is not None:
                known.setdefault(key, group)
    return groups


def _may_be_at(group: Sequence[GpuFact], pci: str | None) -> bool:
    return pci is None or all(record.pci in (None, pci) for record in group)


def _may_have(group: Sequence[GpuFact], uuid: str | None) -> bool:
    return uuid is None or all(record.uuid in (None, uuid) for record in group)


def gpu_of(place: int, fact: GpuFact, pci_numa: int | None, linked: bool) -> Gpu:
    """The GPU that a merged record describes. `place` stands in for an index nobody gave, and `pci_numa`, the NUMA node
    of its PCI function, for one that no GPU tool gave. `linked` is whether any GPU of the node has an NVLink.
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
        health=health_of(fact, linked),
    )


def health_of(fact: GpuFact, linked: bool) -> Health:
    """A GPU is healthy when something was looked at and none of it is amiss; with nothing looked at it is unknown.

    No link at all is a fault where NVLinks are to be expected: some were listed, a peer in the node has one (`linked`),
    or the product has. A PCIe card without them is none.
    """
    links, seen = fact.links, fact.links_seen
    if links == 0 and (seen or linked or _has_nvlink(fact)):
        return Health.DOWN
    signs = [
        links >= seen if links is not None and seen else None,
        healthy(fact.health_mask) if fact.health_mask is not None else None,
        fact.fabric_state in ("completed", "not-supported") if fact.fabric_state is not None else None,
        status_good(fact.fabric_status),
        summary_good(fact.health_summary),
    ]
    looked_at = [sign for sign in signs if sign is not None]
    if not looked_at:
        return Health.UNKNOWN
    return Health.HEALTHY if all(looked_at) else Health.DEGRADED


def _has_nvlink(fact: GpuFact) -> bool:
    return kind_of(fact.product) in kinds.SHAPES and "PCIE" not in (fact.product or "").upper()


@lru_cache(maxsize=256)
def kind_of(product: str | None) -> str:
    """`NVIDIA GB300` → `GB300`, `NVIDIA H100 80GB HBM3` → `H100`, `NVIDIA A100-SXM4-80GB` → `A100`."""
    words = _KIND.sub("", product or "").replace("-", " ").split()
    return words[0] if words else "unknown"


def _subject(node: str, group: Sequence[GpuFact]) -> str:
    index = next((record.index for record in group if record.index is not None), None)
    return f"node {node}, GPU {group[0].pci or group[0].uuid or '?' if index is None else index}"
