"""Is a published checkpoint still what was written? Sizes first, then digests. Needs no torch."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rackyard.checkpoint import manifest
from rackyard.checkpoint.layout import MANIFEST, open_regular
from rackyard.checkpoint.listing import CheckpointInfo, list_checkpoints
from rackyard.checkpoint.manifest import FileRecord, Manifest
from rackyard.findings import Evidence, Finding, Severity, Verdict

RULE = "checkpoint.verify"
MOST_EVIDENCE = 20
_CHUNK = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one file; `certain` is false where it could not be read, so that nobody knows."""

    name: str
    text: str
    certain: bool = True


def verify(info: CheckpointInfo) -> Finding:
    """Compare every file of the checkpoint with its manifest: PASS, FAIL, or UNKNOWN when it can't be read."""
    return conclude(info, problems(info))


def newest_valid(directory: Path | str) -> tuple[CheckpointInfo | None, tuple[Finding, ...]]:
    """The newest checkpoint that verifies, and the findings of all that were looked at, newest first.

    Raises CheckpointError when the directory can't be read.
    """
    findings: list[Finding] = []
    for info in list_checkpoints(directory):
        findings.append(verify(info))
        if findings[-1].verdict is Verdict.PASS:
            return info, tuple(findings)
    return None, tuple(findings)


def problems(info: CheckpointInfo, *, share: int = 0, of: int = 1, deep: bool = True) -> tuple[Problem, ...]:
    """What is wrong with the checkpoint; empty when nothing is.

    Ranks divide the reading: number `share` of `of` takes every `of`-th file. Without `deep` only the manifest and
    the lengths are checked, which costs no reading.
    """
    read, found = _manifest(info)
    if read is None:
        return found
    mine = read.files[share::of]
    wrong = tuple(problem for record in mine if (problem := _length_problem(info.path, record)))
    # Digests cost a read of everything, and the verdict is already known.
    if wrong or not deep:
        return wrong
    return tuple(problem for record in mine if (problem := _digest_problem(info.path, record)))


def conclude(info: CheckpointInfo, found: Sequence[Problem]) -> Finding:
    """The finding that these problems amount to."""
    certain = [problem for problem in found if problem.certain]
    told = certain or list(found)
    if not told:
        summary = f"step {info.step} is intact: {info.files} files, {info.bytes} bytes"
        return Finding(RULE, Verdict.PASS, Severity.INFO, str(info.path), summary)
    more = f", and {len(told) - 1} more" if len(told) > 1 else ""
    return Finding(
        RULE,
        Verdict.FAIL if certain else Verdict.UNKNOWN,
        Severity.ERROR if certain else Severity.WARNING,
        str(info.path),
        f"step {info.step} {'is damaged' if certain else 'can not be checked'}: {told[0].text}{more}",
        _evidence(info.path, told),
        "training resumes from the newest checkpoint that verifies; the next save of this step replaces this one"
        if certain
        else "make the file readable, or use the version of Rackyard that wrote it, and verify again",
    )


def _evidence(path: Path, told: Iterable[Problem]) -> tuple[Evidence, ...]:
    lines = [Evidence(str(path / problem.name), problem.text) for problem in told]
    return tuple(lines[:MOST_EVIDENCE])


def _manifest(info: CheckpointInfo) -> tuple[Manifest | None, tuple[Problem, ...]]:
    try:
        read = manifest.read(info.path)
    except FileNotFoundError:
        return None, (Problem(MANIFEST, f"{MANIFEST} is missing"),)
    except manifest.NewerManifestError as error:
        return None, (Problem(MANIFEST, f"{MANIFEST} is {error}", certain=False),)
    except manifest.ManifestError as error:
        return None, (Problem(MANIFEST, f"{MANIFEST} is malformed: {error}"),)
    except OSError as error:
        return None, (_unreadable(MANIFEST, error),)
    if read.step != info.step:
        return None, (Problem(MANIFEST, f"{MANIFEST} is of step {read.step}, in the directory of step {info.step}"),)
    return read, ()


def _length_problem(path: Path, record: FileRecord) -> Problem | None:
    try:
        fd = open_regular(path / record.name)
    except FileNotFoundError:
        return Problem(record.name, f"{record.name} is missing")
    except OSError as error:
        return _unreadable(record.name, error)
    length = os.fstat(fd).st_size
    os.close(fd)
    if length < record.bytes:
        return Problem(record.name, f"{record.name} is truncated: {length} of {record.bytes} bytes")
    if length > record.bytes:
        return Problem(record.name, f"{record.name} has {length} bytes where {record.bytes} were written")
    return None


def _digest_problem(path: Path, record: FileRecord) -> Problem | None:
    try:
        digest = file_digest(path / record.name)
    except OSError as error:
        return _unreadable(record.name, error)
    if digest != record.sha256:
        return Problem(
            record.name, f"{record.name} differs from what was written: sha256 {digest}, expected {record.sha256}"
        )
    return None


def file_digest(path: Path) -> str:
    """The sha256 of a regular file, in hex. Raises OSError."""
    digest, buffer = hashlib.sha256(), bytearray(_CHUNK)
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(memoryview(buffer)[:count])
    return digest.hexdigest()


def _unreadable(name: str, error: OSError) -> Problem:
    return Problem(name, f"{name} can't be read: {error.strerror or error}", certain=False)
