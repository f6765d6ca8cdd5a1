"""Several records of one thing become one; where they disagree, both are shown and the more trusted one is used."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from msgspec.structs import astuple, replace

from rackyard.fabric.facts import GpuFact, HostFact, NicFact, Source
from rackyard.findings import Finding, Severity, Verdict

CONTRADICTION = "fabric/contradiction"

_TRUST = (
    "nvml",
    "sysfs",
    "nvidia-smi",
    "lldp",
    "ibnetdiscover",
    "iblinkinfo",
    "nmx",
    "netq",
    "nccl",
    "kube",
    "slurm",
    "topograph",
)
"""Who is believed first: the hardware itself, then the network about its hosts, then what somebody configured."""

R = TypeVar("R", HostFact, GpuFact, NicFact)

# What changes from one second to the next is no contradiction between two captures.
_PASSING = frozenset({"pci_gen", "pci_width", "labels", "tiers", "kernel"})
_OWN = 2
"""Every fact begins with its node and its source, which are its own."""
_NOTHING: tuple[object, ...] = ((), "")


@lru_cache(maxsize=256)
def trust(reader: str) -> int:
    """The place of a reader in the order of trust; 0 is believed first."""
    for place, prefix in enumerate(_TRUST):
        if reader.startswith(prefix):
            return place
    return len(_TRUST)


def merge(records: Sequence[R], subject: Callable[[], str], findings: list[Finding], *, also: Sequence[str] = ()) -> R:
    """One record with every value that any of the records gives. Fields named in `also` may differ unreported."""
    if len(records) == 1:
        return records[0]
    ordered = sorted(records, key=lambda record: trust(record.source.reader))
    first = ordered[0]
    names = first.__struct_fields__
    values = list(astuple(first))
    given_by: dict[str, R] = {}
    changed: dict[str, object] = {}
    for record in ordered[1:]:
        for place, other in enumerate(astuple(record)):
            if other is None or place < _OWN or other in _NOTHING:
                continue
            name, value = names[place], values[place]
            if value is None or value in _NOTHING:
                values[place] = changed[name] = other
                given_by[name] = record
            elif other != value and name not in _PASSING and name not in also:
                giver = given_by.get(name, first)
                if name == "links" and other < value:
                    # A tool that still answers hides what another one sees: the fewer links are the true ones.
                    values[place] = changed[name] = other
                    given_by[name] = record
                what = f"{name.replace('_', ' ')}: {_said(giver, value)}, {_said(record, other)}"
                findings.append(
                    contradiction(subject(), f"{what}; {values[place]} is used", (giver.source, record.source))
                )
    return replace(first, **changed)


def _said(record: R, value: object) -> str:
    return f"{record.source.reader} says {value}"


def contradiction(subject: str, summary: str, sources: Sequence[Source]) -> Finding:
    """The finding that two sources say different things."""
    return Finding(
        rule=CONTRADICTION,
        verdict=Verdict.FAIL,
        severity=Severity.WARNING,
        subject=subject,
        summary=summary,
        evidence=tuple(source.evidence() for source in sources),
        advice="find out which capture is old or wrong, and capture again",
    )
