"""Writing a checkpoint's files: through torch.distributed.checkpoint, hashed on the way to the disk."""

import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.distributed.checkpoint.metadata import StorageMeta

from rackyard.checkpoint.layout import extras_name
from rackyard.checkpoint.manifest import FileRecord

_BUFFER = 2**20


class HashingFile:
    """A new file that keeps the digest of what goes in.

    The first error is kept and raised by `flush` and `close`, not by `write`: torch.save calls `write` from C++ and
    turns an error there into one that no longer says that the disk is full.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=_BUFFER)
        self._digest = hashlib.sha256()
        self._size = 0
        self._error: OSError | None = None

    def write(self, data: Any) -> int:
        """Append a buffer; returns its length in bytes."""
        view = memoryview(data)
        if self._error is None:
            try:
                self._file.write(view)
            except OSError as error:
                self._error = error
            else:
                self._digest.update(view)
                self._size += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        """Bytes written so far."""
        return self._size

    def fileno(self) -> int:
        """The descriptor."""
        return self._file.fileno()

    def flush(self) -> None:
        """Hand everything to the operating system. Raises the first OSError met."""
        if self._error is None:
            try:
                self._file.flush()
            except OSError as error:
                self._error = error
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Flush, sync to disk, and close; closing again does nothing. Raises the first OSError met."""
        if self._file.closed:
            return
        try:
            self.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            self._error = self._error or error
        try:
            self._file.close()
        except OSError as error:
            # The buffer's rest, tried once more; the descriptor is closed all the same.
            self._error = self._error or error
        if self._error is not None:
            raise self._error

    def record(self, name: str) -> FileRecord:
        """What the manifest says of this file under `name`."""
        return FileRecord(name, self._size, self._digest.hexdigest())


class HashingFileSystem(FileSystem):
    """The local file system, keeping a record of each file written through it."""

    def __init__(self) -> None:
        super().__init__()
        self.records: dict[str, FileRecord] = {}

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[Any, None, None]:
        """A new file for writing; the only mode is "wb"."""
        if mode != "wb":
            raise ValueError(f"mode {mode!r} is not for writing")
        stream = HashingFile(Path(path))
        try:
            yield stream
        finally:
            stream.close()
        self.records[Path(path).name] = stream.record(Path(path).name)

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Rename a file, and its record."""
        super().rename(path, new_path)
        name = Path(new_path).name
        record = self.records.pop(Path(path).name)
        self.records[name] = FileRecord(name, record.bytes, record.sha256)


class Writer(FileSystemWriter):
    """One rank's part of one checkpoint."""

    def __init__(self, path: Path) -> None:
        # Our files are synced when they are closed.
        super().__init__(path, sync_files=False, overwrite=False)
        self.fs = HashingFileSystem()

    def storage_meta(self) -> StorageMeta:
        """Nothing: the default would record the temporary directory's path."""
        return StorageMeta()

    def write_extras(self, rank: int, extras: dict[str, Any]) -> None:
        """Write what `rank` keeps for itself; the values are plain ones. Raises OSError."""
        with self.fs.create_stream(Path(self.path) / extras_name(rank), "wb") as stream:
            torch.save(extras, cast(IO[bytes], stream))

    @property
    def records(self) -> list[FileRecord]:
        """The files written so far by this rank."""
        return list(cast(HashingFileSystem, self.fs).records.values())
