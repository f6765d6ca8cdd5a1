"""From a placed job to a launch plan."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rackyard.errors import UsageError
from rackyard.launch.environment import Gang, job_environment, rank_environment
from rackyard.launch.plan import LaunchPlan, RankPlan
from rackyard.placement import Placement

TORCH = ("torch", "torch._dynamo")
"""What a training script imports in any case: torch, and what its first optimizer brings in (5 s of CPU more)."""

SHELL_SYNTAX = frozenset("\n|&;<>()$`*?[]{}~#!\"'\\")


def build(spec: Mapping[str, Any], placement: Placement, gang: Gang, workdir: str, job_dir: Path) -> LaunchPlan:
    """The plan of one attempt. `spec` is the job file as data; `job_dir` is where its logs go."""
    racks = {node: segment.rack for segment in placement.segments for node in segment.nodes}
    ranks = tuple(
        RankPlan(seat.rank, seat.local_rank, seat.node, rank_environment(seat, placement, gang, racks))
        for seat in placement.seats
    )
    return LaunchPlan(
        job=gang.job,
        attempt=gang.attempt,
        run=str(spec["run"]),
        cwd=workdir,
        env=job_environment(gang, spec),
        warm=warm_modules(spec),
        ranks=ranks,
        log_dir=str(job_dir / "logs"),
    )


def warm_modules(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """What to import before forking: the job file's `warm`, else torch for a Python command, else nothing."""
    wanted = spec.get("warm")
    if wanted is not None:
        return tuple(str(module) for module in wanted)
    return TORCH if python_script(str(spec["run"])) is not None else ()


def python_script(run: str) -> Sequence[str] | None:
    """The words after `python` of a plain Python command; None where it is anything else."""
    if any(char in SHELL_SYNTAX - {'"', "'"} for char in run):
        return None
    try:
        words = shlex.split(run)
    except ValueError:
        return None
    if not words or Path(words[0]).name not in ("python", "python3"):
        return None
    rest = words[1:]
    while rest and rest[0] == "-u":
        rest = rest[1:]
    return rest or None


def check_script(run: str, workdir: str) -> None:
    """UsageError when the command names a Python script or program file that does not exist."""
    words = python_script(run)
    script = words[0] if words is not None else run.split(maxsplit=1)[0]
    if script.startswith("-") or (words is None and (set(script) & SHELL_SYNTAX or "/" not in script)):
        return  # a module, a program on PATH, or something only the shell can tell
    path = Path(workdir) / script
    if not path.is_file():
        raise UsageError(
            f"the script {script!r} does not exist",
            where=str(path),
            why=f"`run: {run}` is started in {workdir}",
            fix="correct `run` or `workdir` in the job file, or start rackyard where the script lies",
        )
