"""`manifest.json`: what a published checkpoint must consist of, protected by a digest over itself."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackyard.checkpoint.layout import MANIFEST, is_file_name, open_regular

VERSION = 1
MAX_BYTES = 64 * 2**20
"""The longest manifest that is read: some 500,000 files, far above one a rank."""

_SHA256 = re.compile(r"[0-9a-f]{64}")


class ManifestError(ValueError):
    """The manifest can't be used; the message says why."""


class NewerManifestError(ManifestError):
    """A later version of Rackyard wrote it, so it may well be fine, but this version can't tell."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """One file as it was written: `bytes` is its length, `sha256` its digest in lower-case hex."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One checkpoint as it was published."""

    step: int
    world_size: int  # ranks that wrote it
    created: float  # seconds since 1970, UTC
    files: tuple[FileRecord, ...]
    versions: Mapping[str, str] = field(default_factory=dict)  # of the frameworks that wrote it
    metrics: Mapping[str, float] = field(default_factory=dict)  # e.g. stall_s, write_s

    @property
    def bytes(self) -> int:
        """Length of all files together."""
        return sum(file.bytes for file in self.files)

    def file(self, name: str) -> FileRecord | None:
        """The record of `name`, or None."""
        return next((file for file in self.files if file.name == name), None)


def dumps(manifest: Manifest) -> bytes:
    """The manifest's text. Equal manifests give equal bytes."""
    body: dict[str, Any] = {
        "version": VERSION,
        "step": manifest.step,
        "world_size": manifest.world_size,
        "created": manifest.created,
        "versions": dict(manifest.versions),
        "metrics": dict(manifest.metrics),
        "files": [{"name": f.name, "bytes": f.bytes, "sha256": f.sha256} for f in manifest.files],
    }
    return json.dumps({**body, "digest": _digest(body)}, indent=1, sort_keys=True).encode()


def parse(data: bytes) -> Manifest:
    """Read a manifest's text. Raises ManifestError, and nothing else, whatever the bytes are."""
    if len(data) > MAX_BYTES:
        raise ManifestError(f"longer than {MAX_BYTES} bytes")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"not JSON: {error}") from error
    if not isinstance(body, dict):
        raise ManifestError("not a JSON object")
    version = body.get("version")
    if type(version) is int and version > VERSION:
        raise NewerManifestError(f"of version {version}, and this Rackyard reads version {VERSION}")
    if version != VERSION:
        raise ManifestError(f"version is {version!r:.40}, not {VERSION}")
    _check_digest(body)
    return Manifest(
        step=_count(body, "step"),
        world_size=_count(body, "world_size"),
        created=_number(body.get("created"), "created"),
        files=_files(body.get("files")),
        versions={key: str(value) for key, value in _object(body, "versions").items()},
        metrics={key: _number(value, f"metrics.{key}") for key, value in _object(body, "metrics").items()},
    )


def read(checkpoint: Path) -> Manifest:
    """Read the manifest of the checkpoint directory. Raises ManifestError, FileNotFoundError, OSError."""
    with os.fdopen(open_regular(checkpoint / MANIFEST), "rb") as file:
        return parse(file.read(MAX_BYTES + 1))


def _digest(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _check_digest(body: dict[str, Any]) -> None:
    said = body.pop("digest", None)
    try:
        found = _digest(body)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"can't be digested: {error}") from error
    if said != found:
        raise ManifestError("its own digest doesn't match: it was changed after it was written")


def _count(body: Mapping[str, Any], key: str) -> int:
    value = body.get(key)
    if type(value) is not int or not 0 <= value < 2**63:
        raise ManifestError(f"{key} is {value!r:.40}, not a count")
    return value


def _number(value: object, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ManifestError(f"{key} is {value!r:.40}, not a number")
    try:
        return float(value)
    except OverflowError as error:
        raise ManifestError(f"{key} is too large") from error


def _object(body: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = body.get(key)
    if not isinstance(value, dict):
        raise ManifestError(f"{key} is not an object")
    return value


def _files(value: object) -> tuple[FileRecord, ...]:
    if not isinstance(value, list) or not value:
        raise ManifestError("files is not a list with entries")
    records = tuple(_file(entry) for entry in value)
    if len({record.name for record in records}) != len(records):
        raise ManifestError("files names a file twice")
    return records


def _file(entry: object) -> FileRecord:
    if not isinstance(entry, dict):
        raise ManifestError("files has an entry that is not an object")
    name, digest = entry.get("name"), entry.get("sha256")
    if not isinstance(name, str) or not is_file_name(name) or name == MANIFEST:
        raise ManifestError(f"files names {name!r:.80}, which is not a plain file name: refused")
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise ManifestError(f"the sha256 of {name} is not a digest")
    return FileRecord(name, _count(entry, "bytes"), digest)
