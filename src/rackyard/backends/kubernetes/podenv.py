"""What a pod of a gang knows of its ranks, from its environment; and the lines by which it tells of them. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackyard.errors import UsageError
from rackyard.launch.environment import Gang, Tray, seat_environment
from rackyard.placement import Seat

_SEAT = re.compile(r"(\d{1,7}):(\d{1,3}):([^:,]*)")
_MASTER = re.compile(r"(.+):(\d{1,5})")
_UNKNOWN_RAIL = -1
_STEP = re.compile(r"step (\d+)((?: \w+=\S+)*)")
_CHECKPOINT = re.compile(r"checkpoint step (\d+) published: (.*)")
_RESUMED = re.compile(r"resumed from step (\d+)")


@dataclass(frozen=True, slots=True)
class Seats:
    """The ranks of this pod, and the gang around them."""

    node: str
    tray: Tray
    gang: Gang
    base: Mapping[str, str]
    """The environment that the container was given."""

    def plan(self, run: str, warm: tuple[str, ...], cwd: str, folder: Path) -> dict[str, Any]:
        """What an agent is told to start."""
        ranks = [
            {"rank": seat.rank, "local_rank": seat.local_rank, "env": self._environment(seat)}
            for seat in self.tray.seats
        ]
        return {
            "job": self.gang.job,
            "attempt": self.gang.attempt,
            "run": run,
            "cwd": cwd,
            "env": {},
            "warm": list(warm),
            "ranks": ranks,
            "world": self.tray.world,
            "log_dir": str(folder / "logs"),
        }

    def _environment(self, seat: Seat) -> dict[str, str]:
        env = seat_environment(seat, self.tray, self.gang)
        del env["NCCL_TOPO_FILE"]  # NCCL finds the topology of the machine it is on by itself
        if self.base.get("CUDA_VISIBLE_DEVICES"):
            env["CUDA_VISIBLE_DEVICES"] = self.base["CUDA_VISIBLE_DEVICES"]
        elif self.base.get("NVIDIA_VISIBLE_DEVICES"):
            # The device plug-in's choice; inside, its devices are numbered from 0.
            env["CUDA_VISIBLE_DEVICES"] = ",".join(str(index) for index in range(len(self.tray.seats)))
        return env


def read(env: Mapping[str, str]) -> Seats:
    """The seats that the gang's release has written. UsageError where it has not, or not so."""

    def told(name: str) -> str:
        if not env.get(name):
            why = f"{name} is not in the environment: the pod was let go without a plan, or by another version"
            raise UsageError("this pod does not know its ranks", why=why, fix="submit it with `rackyard submit`")
        return env[name]

    found = [_SEAT.fullmatch(text) for text in told("RACKYARD_POD_SEATS").split(",")]
    master = _MASTER.fullmatch(told("RACKYARD_POD_MASTER"))
    try:
        pods, index, attempt, segment = (
            int(told(f"RACKYARD_POD_{name}")) for name in ("COUNT", "RANK", "ATTEMPT", "SEGMENT")
        )
    except ValueError as error:
        raise UsageError("this pod does not know its ranks", why=str(error)) from None
    if master is None or not all(found):
        raise UsageError("this pod does not know its ranks", why="its seats or rank 0's address are in no form we know")
    node = told("RACKYARD_NODE")
    rails = [int(rail) if rail.isdecimal() else _UNKNOWN_RAIL for rail in env.get("RACKYARD_POD_RAILS", "").split(",")]
    rails += [_UNKNOWN_RAIL] * (len(found) - len(rails))
    seats = tuple(
        Seat(int(one[1]), node, at, int(one[2]), one[3], rails[at], segment)
        for at, one in enumerate(found)
        if one is not None
    )
    tray = Tray(seats, index, pods, pods * len(seats), env.get("RACKYARD_POD_RACK", ""))
    allowed = int(env.get("TORCHELASTIC_MAX_RESTARTS", "0")) + 1
    return Seats(
        node, tray, Gang(told("RACKYARD_JOB"), attempt, allowed, master[1], int(master[2]), None, ""), dict(env)
    )


def step_line(step: int, metrics: Mapping[str, float]) -> str:
    """How a pod tells of a step; floats as they are, to the last bit."""
    return f"step {step}" + "".join(f" {name}={value!r}" for name, value in metrics.items())


def line_of(kind: str, fields: Mapping[str, Any]) -> str | None:
    """How a pod tells of anything else; None for what goes without saying."""
    if kind == "CheckpointDone":
        return f"checkpoint step {fields['step']} published: {fields['path']}"
    if kind == "CheckpointDamaged":
        return f"checkpoint damaged and passed over: {fields['path']}: {fields['why']}"
    if kind == "Resumed" and fields["rank"] == 0:
        return f"resumed from step {fields['step']}"
    if kind == "NodeWarm" and fields["problem"]:
        return f"ranks start without warm imports: {fields['problem']}"
    return None


@dataclass(frozen=True, slots=True)
class Progress:
    """What the lines of rank 0's pod say."""

    step: int = 0
    metrics: Mapping[str, float] | None = None
    checkpoint: int | None = None
    path: str = ""
    resumed: int | None = None


def progress(lines: list[str]) -> Progress:
    """The newest step, checkpoint and so on among a pod's `[rackyard]` lines, without that mark."""
    step, metrics, checkpoint, path, resumed = 0, None, None, "", None
    for line in lines:
        if found := _STEP.fullmatch(line):
            step, metrics = int(found[1]), _metrics(found[2])
        elif found := _CHECKPOINT.fullmatch(line):
            checkpoint, path = int(found[1]), found[2]
        elif found := _RESUMED.fullmatch(line):
            resumed = int(found[1])
            step = max(step, resumed)
    return Progress(step, metrics, checkpoint, path, resumed)


def _metrics(text: str) -> dict[str, float]:
    found = {}
    for word in text.split():
        name, _, value = word.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            continue
    return found
