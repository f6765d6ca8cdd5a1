"""`Checkpointer`: what a training script uses to save, find and load its state."""

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from rackyard import worker
from rackyard.checkpoint import loading, saving
from rackyard.checkpoint.failure import explain, quiet_single_process, say
from rackyard.checkpoint.layout import clean_leftovers, temporary_name
from rackyard.checkpoint.listing import CheckpointInfo, list_checkpoints
from rackyard.checkpoint.publish import newest_sound
from rackyard.checkpoint.state import FlatState, check_plain, staged_plain
from rackyard.checkpoint.team import Team
from rackyard.checkpoint.verify import conclude, problems
from rackyard.errors import CheckpointError
from rackyard.findings import Verdict


@dataclass(frozen=True, slots=True)
class SaveTimes:
    """What the last published save cost: `stall` is how long training stood still, `write` the rest, in seconds."""

    step: int
    stall: float
    write: float
    bytes: int


class Checkpointer:
    """Saves and loads training state in `directory`, which all ranks must see. Use it alike on every rank.

    `keep` is how many published checkpoints stay. `on_error="warn"` lets training go on when a save fails, and says
    so on stderr; "raise" raises its CheckpointError at the next `save` or `wait`. With `read_only` nothing is
    created or cleaned up, and `save` is refused.

    Making one is a collective call where torch.distributed is initialised. Raises CheckpointError, on every rank,
    when the directory can't be made, written, or seen by one of them.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        keep: int = 3,
        on_error: Literal["warn", "raise"] = "warn",
        *,
        read_only: bool = False,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, not {keep}")
        if on_error not in {"warn", "raise"}:
            raise ValueError(f'on_error must be "warn" or "raise", not {on_error!r}')
        self.directory = Path(directory).absolute()
        self.keep = keep
        self.on_error = on_error
        self.last: SaveTimes | None = None
        self.last_error: CheckpointError | None = None
        self._read_only = read_only
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self._verified: set[Path] = set()
        self._team = Team()
        if not read_only:
            _open_directory(self._team, self.directory)

    def save(self, step: int, state: Mapping[str, Any], per_rank: Mapping[str, Any] | None = None) -> None:
        """Copy `state` and write the copy in the background, to be published as the checkpoint of `step`.

        `state` is nested dicts of tensors (plain ones are taken to be the same on all ranks, DTensors are sharded),
        plain values, and objects with state_dict and load_state_dict; `per_rank` is what this rank keeps for itself,
        such as random generator states. Waits for the save before. Raises CheckpointError when the state can't be
        saved safely, and with `on_error="raise"` that of the save before.
        """
        if self._read_only:
            raise CheckpointError("this checkpointer only reads", where=str(self.directory), fix="leave out read_only")
        if isinstance(step, bool) or step < 0:
            raise ValueError(f"step must be a count from 0, not {step}")
        began = time.monotonic()
        self.wait()
        extras = None if per_rank is None else dict(per_rank)
        check_plain("per_rank", extras)
        job = saving.Job(self.directory, self.keep, step, FlatState(state).staged(), staged_plain(extras), began=began)
        job.stall = time.monotonic() - began
        quiet_single_process()
        # Not a daemon: a script that ends without wait() still gets its last checkpoint.
        self._thread = threading.Thread(target=self._run, args=(job,), name=f"checkpoint-{step}")
        self._thread.start()

    def latest(self) -> CheckpointInfo | None:
        """The newest checkpoint that verifies, the same on all ranks; None when there is none.

        Reads all of it, divided among the ranks. Damaged ones are reported and passed over.
        Raises CheckpointError when the directory can't be read.
        """
        self.wait()
        infos = self._team.from_lead(
            lambda: list_checkpoints(self.directory), what="can't list the checkpoints", where=self.directory
        )
        return next((info for info in infos if self._verifies(info)), None)

    def load(self, found: CheckpointInfo, state: Mapping[str, Any], *, partial: bool = False) -> dict[str, Any]:
        """Load the checkpoint into `state`, in place; returns what this rank had kept as `per_rank`, or {}.

        The number of ranks may differ from the one that saved: shards are cut anew, and a rank that did not exist
        then gets {}. Optimizers without state yet are given one. With `partial` the checkpoint may hold more than
        `state` asks for. Raises CheckpointError, on every rank, when it is damaged or doesn't fit.
        """
        self.wait()
        if found.path not in self._verified and not self._verifies(found):
            raise CheckpointError("the checkpoint is damaged", where=str(found.path), fix="use the one before it")
        return loading.load(self._team, found.path, state, partial=partial)

    def wait(self) -> None:
        """Return when the pending save is over. With `on_error="raise"` raises its CheckpointError."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def __enter__(self) -> "Checkpointer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wait()

    def _run(self, job: saving.Job) -> None:
        try:
            saved = saving.save(self._team, job)
        except Exception as error:  # noqa: BLE001 -- raised, or told, where training can act on it
            self._failed(job.step, explain(f"step {job.step} not saved", self.directory, error))
            return
        self._verified.add(saved.path)
        self.last = SaveTimes(job.step, job.stall, saved.write, saved.bytes)
        self.last_error = None

    def _failed(self, step: int, error: CheckpointError) -> None:
        self.last_error = error
        if self.on_error == "raise":
            self._failure = error
            return
        if self._team.leads:
            newest = _newest(self.directory)
            usable = f"newest usable is step {newest}" if newest is not None else "there is no usable checkpoint yet"
            fix = f" ({error.fix})" if error.fix else ""
            say(f"step {step} not saved: {error.why or error.what}{fix}; training goes on; {usable}")

    def _verifies(self, info: CheckpointInfo) -> bool:
        team = self._team
        found = team.everyone(
            lambda: problems(info, share=team.rank, of=team.size), what="can't verify a checkpoint", where=info.path
        )
        finding = conclude(info, list(dict.fromkeys(problem for part in found for problem in part)))
        if finding.verdict is Verdict.PASS:
            self._verified.add(info.path)
            return True
        if team.leads:
            worker.report_damage(str(info.path), finding.summary)
            say(f"{finding.summary} ({info.path}); using the one before it")
        return False


def _open_directory(team: Team, directory: Path) -> None:
    what = "the checkpoint directory can't be used"
    token = team.from_lead(lambda: _lead_opens(directory), what=what, where=directory)
    try:
        team.everyone(lambda: _probe(directory, token), what=what, where=directory)
    finally:
        if team.leads:
            (directory / token).unlink(missing_ok=True)


def _lead_opens(directory: Path) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    clean_leftovers(directory)
    token = temporary_name("probe")
    (directory / token).touch()
    return token


def _probe(directory: Path, token: str) -> None:
    """Raises unless this rank sees the lead's file and can write beside it."""
    if not (directory / token).exists():
        raise CheckpointError(
            "the checkpoint directory can't be used",
            where=str(directory),
            why="it is not the directory that rank 0 sees",
            fix="name a directory on a file system that all nodes share",
        )
    mine = directory / temporary_name("probe")
    mine.touch()
    mine.unlink()


def _newest(directory: Path) -> int | None:
    """The newest usable step as far as can be told: the directory itself may be what failed."""
    try:
        return newest_sound(directory)
    except CheckpointError:
        return None
