"""From a placed job to a launch plan."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rackyard import shellwords
from rackyard.errors import UsageError
from rackyard.launch.environment import Gang, job_environment, rank_environment
from rackyard.launch.plan import LaunchPlan, RankPlan
from rackyard.placement import Placement

TORCH = ("torch", "torch._dynamo")
"""What a training script imports in any case: torch, and what its first optimizer brings in (5 s of CPU more)."""


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
    return TORCH if _is_python(shellwords.split(str(spec["run"]))) else ()


def _is_python(words: tuple[str, ...] | None) -> bool:
    return words is not None and Path(words[0]).name in ("python", "python3")


def check_script(run: str, workdir: str) -> None:
    """UsageError when the command names a Python script or program file that does not exist."""
    words = shellwords.split(run)
    if words is None:
        return  # only the shell can tell
    script = next(iter(shellwords.after_python(words)), "-") if _is_python(words) else words[0]
    if script.startswith("-") or (not _is_python(words) and "/" not in script):
        return  # a module, or a program on PATH
    path = Path(workdir) / script
    if not path.is_file():
        raise UsageError(
            f"the script {script!r} does not exist",
            where=str(path),
            why=f"`run: {run}` is started in {workdir}",
            fix="correct `run` or `workdir` in the job file, or start rackyard where the script lies",
        )
