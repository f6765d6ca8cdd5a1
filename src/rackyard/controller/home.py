"""The state folder: where the store, the site, the nodes' journals and the jobs' logs lie, and who may write."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rackyard.controller.store import Store
from rackyard.errors import ConflictError, RackyardError, UsageError
from rackyard.fabric import Site, simulate
from rackyard.fabric import load as load_site
from rackyard.fabric.yamlio import dump

SITE_SETTING = "site"


class Home:
    """A state folder. Opening it creates what is missing."""

    def __init__(self, path: Path) -> None:
        """RackyardError when the folder can't be made or written."""
        self.path = path.absolute()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe = self.path / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise RackyardError(
                "the state folder can't be used",
                where=str(path),
                why=error.strerror or str(error),
                fix="name another one with --state or RACKYARD_STATE",
            ) from error
        self.store = Store(self.path / "rackyard.db")

    def job_dir(self, job: str) -> Path:
        """Where the job's logs and topology files lie."""
        return self.path / "jobs" / job

    def site(self, file: Path | None = None) -> Site:
        """The folder's site. With `file` the site is set first; without one ever set it is two simulated racks.

        UsageError when `file` differs from the site that unfinished jobs run on; SpecError for a bad file.
        """
        stored = self.store.setting(SITE_SETTING)
        if file is not None:
            text = dump(load_site(file.read_text(), str(file)) if file.is_file() else _missing(file))
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
            stored = dump(simulate(racks=2))
            self.store.set_setting(SITE_SETTING, stored)
        return load_site(stored, "the stored site")

    @contextmanager
    def controller_lock(self) -> Iterator[None]:
        """Held by the one controller of this folder. ConflictError when another holds it.

        The kernel drops the lock when its holder dies, however it dies.
        """
        path = self.path / "controller.lock"
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
            yield
        finally:
            os.close(handle)


def _missing(file: Path) -> Site:
    raise UsageError("the site file does not exist", where=str(file), fix="give the path of a site YAML file")
