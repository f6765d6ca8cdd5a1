"""The state folder: where the store, the site, the nodes' journals and the jobs' logs lie, and who may write."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rackyard.controller.reading import LOCK_FILE, STORE_FILE, controller_pid
from rackyard.controller.sites import SITE_SETTING, read_site, stored_site
from rackyard.controller.store import Store
from rackyard.errors import ConflictError, RackyardError, UsageError
from rackyard.fabric import Site, dump


class Home:
    """A state folder. Opening it creates what is missing."""

    def __init__(self, path: Path) -> None:
        """RackyardError when the folder can't be made or written."""
        self.path = path.absolute()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # Named after the process: two that open the folder at once must not take away each other's.
            probe = self.path / f".writable-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise RackyardError(
                "the state folder can't be used",
                where=str(path),
                why=error.strerror or str(error),
                fix="name another one with --state or RACKYARD_STATE",
            ) from error
        self.store = Store(self.path / STORE_FILE)

    def job_dir(self, job: str) -> Path:
        """Where the job's logs and topology files lie."""
        return self.path / "jobs" / job

    def site(self, file: Path | None = None) -> Site:
        """The folder's site. With `file` the site is set first; without one ever set it is two simulated racks.

        UsageError when `file` differs from the site that unfinished jobs run on; SpecError for a bad file.
        """
        stored = self.store.setting(SITE_SETTING)
        if file is not None:
            text = dump(read_site(file))
            if stored is not None and text != stored and self.store.jobs(live_only=True):
                raise UsageError(
                    "the site can't be changed while jobs run on it",
                    where=str(file),
                    why=f"{self.path} holds another site with unfinished jobs",
                    fix="cancel them, or use another state folder (--state)",
                )
            self.store.set_setting(SITE_SETTING, text)
            stored = text
        if stored is None:
            self.store.set_setting(SITE_SETTING, dump(stored_site(self.store)))
        return stored_site(self.store)

    def controller_pid(self) -> int | None:
        """The process that controls this folder now, as far as can be told without getting in its way."""
        return controller_pid(self.path)

    @contextmanager
    def controller_lock(self) -> Iterator[None]:
        """Held by the one controller of this folder. ConflictError when another holds it.

        The kernel drops the lock when its holder dies, however it dies.
        """
        path = self.path / LOCK_FILE
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.pread(handle, 32, 0).decode(errors="replace").strip()
                raise ConflictError(
                    "another controller works on this store",
                    where=str(path),
                    why=f"process {holder or 'unknown'} holds the lock",
                    fix="use `rackyard submit` to give it the job, or another --state folder",
                ) from error
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
            try:
                yield
            finally:
                os.ftruncate(handle, 0)
        finally:
            os.close(handle)
