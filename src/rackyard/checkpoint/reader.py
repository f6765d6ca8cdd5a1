"""Reading a verified checkpoint without running anything it contains."""

import hashlib
import io
import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import filesystem, metadata
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import ReadItem

from rackyard.checkpoint.layout import METADATA, extras_name, open_regular
from rackyard.checkpoint.manifest import Manifest
from rackyard.errors import CheckpointError

_ALLOWED: dict[tuple[str, str], Any] = {
    **{
        (kind.__module__, kind.__qualname__): kind
        for kind in (
            metadata.Metadata,
            metadata.TensorStorageMetadata,
            metadata.BytesStorageMetadata,
            metadata.TensorProperties,
            metadata.ChunkStorageMetadata,
            metadata.MetadataIndex,
            metadata.StorageMeta,
            metadata._MEM_FORMAT_ENCODING,
            filesystem._StorageInfo,
            OrderedDict,
        )
    },
    ("torch", "Size"): torch.Size,
    # What torch registers for layouts: a look-up by name in a table of its own.
    ("torch.serialization", "_get_layout"): torch.serialization._get_layout,
    **{("torch", name): value for name, value in vars(torch).items() if isinstance(value, torch.dtype)},
}


class RestrictedUnpickler(pickle.Unpickler):
    """Reads the index of torch.distributed.checkpoint, and refuses every other class and function."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """The allowed global of this name. Raises UnpicklingError for any other."""
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module_name}.{global_name} has no place in a checkpoint: refused") from None


def read_index(path: Path, manifest: Manifest) -> Metadata:
    """The index of the checkpoint at `path`, checked against its manifest before anything is decoded.

    Raises CheckpointError, OSError.
    """
    index = _decode(path, _read_checked(path, METADATA, manifest))
    lengths = {file.name: file.bytes for file in manifest.files}
    for place in index.storage_data.values():
        if place.transform_descriptors or not 0 <= place.offset <= place.offset + place.length <= lengths.get(
            place.relative_path, -1
        ):
            raise _damaged(path, f"{METADATA} points outside the files that were written: {place.relative_path!r:.80}")
    return index


def read_extras(path: Path, manifest: Manifest, rank: int) -> dict[str, Any]:
    """What `rank` kept for itself; empty where it kept nothing. Raises CheckpointError, OSError."""
    if manifest.file(extras_name(rank)) is None:
        return {}
    data = _read_checked(path, extras_name(rank), manifest)
    extras = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    if not isinstance(extras, dict):
        raise _damaged(path, f"{extras_name(rank)} holds a {type(extras).__name__}, not a dict")
    return extras


def check_fit(path: Path, leaves: dict[str, Any], index: Metadata, *, partial: bool) -> None:
    """Raises CheckpointError unless checkpoint and state have the same entries, tensors of the same shape.

    With `partial` the checkpoint may have more.
    """
    saved = index.state_dict_metadata
    lacking = sorted(leaves.keys() - saved.keys())
    surplus = [] if partial else sorted(saved.keys() - leaves.keys())
    shapes = [text for name in sorted(leaves.keys() & saved.keys()) if (text := _misfit(name, leaves[name], saved))]
    told = [
        *([f"not in the checkpoint: {_some(lacking)}"] if lacking else []),
        *([f"not in the training state: {_some(surplus)}"] if surplus else []),
        *([_some(shapes)] if shapes else []),
    ]
    if told:
        raise CheckpointError(
            "the checkpoint does not fit the training state",
            where=str(path),
            why="; ".join(told),
            fix="resume with the model and optimizer it was made with, or use another checkpoint directory",
        )


class Reader(FileSystemReader):
    """Reads shards by an index that has been checked already."""

    def __init__(self, path: Path, index: Metadata) -> None:
        super().__init__(path)
        self._index = index

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The checked index: the pickle on disk is not read again."""
        return self._index


class Planner(DefaultLoadPlanner):
    """Loads tensors in place and plain values, without pickled code, into `values`."""

    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self.values: dict[str, Any] = {}

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Decode one plain value."""
        self.values[read_item.dest_index.fqn] = torch.load(value, map_location="cpu", weights_only=True)


def _read_checked(path: Path, name: str, manifest: Manifest) -> bytes:
    record = manifest.file(name)
    if record is None:
        raise _damaged(path, f"the manifest does not list {name}")
    with os.fdopen(open_regular(path / name), "rb") as file:
        data = file.read(record.bytes + 1)
    if len(data) != record.bytes or hashlib.sha256(data).hexdigest() != record.sha256:
        raise _damaged(path, f"{name} differs from what was written")
    return data


def _decode(path: Path, data: bytes) -> Metadata:
    try:
        index = RestrictedUnpickler(io.BytesIO(data)).load()
    except Exception as error:  # a pickle can fail in any way; each means that it can't be used
        raise _damaged(path, f"{METADATA} can't be decoded: {error}") from error
    if not isinstance(index, Metadata) or not isinstance(index.storage_data, dict):
        raise _damaged(path, f"{METADATA} is not an index of torch.distributed.checkpoint")
    return index


def _misfit(name: str, leaf: Any, saved: dict[str, Any]) -> str:
    entry = saved[name]
    if isinstance(leaf, torch.Tensor) != isinstance(entry, TensorStorageMetadata):
        return f"{name} is a tensor only in one of the two"
    if isinstance(leaf, torch.Tensor) and leaf.size() != entry.size:
        return f"{name} is {tuple(entry.size)} in the checkpoint and {tuple(leaf.size())} in the training state"
    return ""


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError("the checkpoint is damaged", where=str(path), why=why, fix="use the checkpoint before it")
