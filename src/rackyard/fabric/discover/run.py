"""Any mix of captures from any number of hosts becomes one site."""

import re
from collections.abc import Iterable, Iterator, Sequence

from rackyard.errors import RackyardError, UsageError, Where
from rackyard.fabric.bulk import uncollected
from rackyard.fabric.discover.merge import Discovered, merge
from rackyard.fabric.facts import Facts
from rackyard.fabric.readers.bundle import is_bundle, unpack
from rackyard.fabric.readers.reader import MAX_BYTES, Capture, Reader, head_of
from rackyard.findings import Evidence, Finding, Severity, Verdict

SIMULATED = b"simulated by rackyard"
"""What every made-up capture says in its first lines."""

_SIMULATED_SITE = re.compile(rb'^\s*\{\s*"format"\s*:\s*"rackyard\.site"[^{\[]*"simulated"\s*:\s*true')
"""How an exported site says it."""


def discover(captures: Iterable[Capture], readers: Sequence[Reader], name: str = "site") -> Discovered:
    """Read, merge, and report what could not be read. UsageError when not one of the captures could."""
    with uncollected():
        facts, simulated = read(captures, readers)
        return merge(facts, name, simulated=simulated)


def read(captures: Iterable[Capture], readers: Sequence[Reader]) -> tuple[Facts, bool]:
    """The facts of all captures, and whether any is made up. One that can't be read is a finding, not the end."""
    facts, simulated, good = Facts(), False, 0
    first: RackyardError | None = None
    for capture, trouble in _unpacked(captures):
        if trouble is None:
            try:
                facts.add(_read_one(capture, readers))
                simulated = simulated or _is_simulated(capture.data[:1000])
                good += 1
                continue
            except RackyardError as error:
                trouble = error
        first = first or trouble
        facts.findings.append(_unreadable(capture, trouble))
    if first is not None and not good:
        raise first
    return facts, simulated


def _is_simulated(head: bytes) -> bool:
    return SIMULATED in head or _SIMULATED_SITE.match(head) is not None


def _unpacked(captures: Iterable[Capture]) -> Iterator[tuple[Capture, RackyardError | None]]:
    for capture in captures:
        if not is_bundle(capture.data):
            yield capture, None
            continue
        try:
            members = unpack(capture)
        except RackyardError as error:
            yield capture, error
            continue
        for member in members:
            yield member, None


def _read_one(capture: Capture, readers: Sequence[Reader]) -> Facts:
    if len(capture.data) > MAX_BYTES:
        raise UsageError(
            "the capture is too large",
            where=capture.file,
            why=f"{len(capture.data)} bytes, and {MAX_BYTES} is the most that is read",
        )
    head = head_of(capture)
    for reader in readers:
        if reader.knows(head, capture.file):
            return reader.read(capture)
    why = "it is empty" if not capture.data.strip() else f"it starts with {head.strip()[:40]!r}"
    names = ", ".join(reader.name for reader in readers)
    raise UsageError("no reader knows this kind of capture", where=Where(capture.file, 1), why=why, fix=f"give {names}")


def _unreadable(capture: Capture, error: RackyardError) -> Finding:
    place = error.where if isinstance(error.where, Where) else Where(capture.file)
    return Finding(
        rule="fabric/unreadable",
        verdict=Verdict.UNKNOWN,
        severity=Severity.WARNING,
        subject=str(place),
        summary=f"{error.what}: {error.why}" if error.why else error.what,
        evidence=(Evidence(place.file, "", place.line),),
        advice=error.fix or "capture it again",
    )
