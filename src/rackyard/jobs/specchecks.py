"""The rules of the job spec that need more than one key."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rackyard.jobs.spec import JobSpec

Path = tuple[str | int, ...]
"""The keys and list positions that lead to a value, from the top of the file."""

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED_ENV = frozenset(
    """
    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME ROLE_RANK ROLE_WORLD_SIZE
    NODE_RANK MASTER_ADDR MASTER_PORT CUDA_VISIBLE_DEVICES NCCL_TOPO_FILE NCCL_IB_HCA
    """.split()  # noqa: SIM905 - one name a line would take a page
)
"""What the launcher sets for every rank. A job's own value would be overwritten, so it is refused aloud."""
_RESERVED_PREFIXES = ("RACKYARD_", "TORCHELASTIC_")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a spec: the keys that lead there, what is wrong and what to write instead."""

    path: Path
    what: str
    fix: str = ""


def cross_problems(spec: "JobSpec") -> list[Problem]:
    """What is wrong between the keys of a spec whose keys are right one by one."""
    return [*_segment(spec), *_parallel(spec), *_spread(spec), *_env(spec)]


def _divisors(number: int, most: int = 8) -> str:
    """The largest divisors of `number`, for advice."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    every = sorted({*small, *(number // d for d in small)})
    return ", ".join(map(str, every[-most:]))


def _segment(spec: "JobSpec") -> list[Problem]:
    if spec.segment is None or spec.gpus % spec.segment.gpus == 0:
        return []
    what = f"must divide the job's {spec.gpus} GPUs into equal segments; {spec.segment.gpus} does not"
    return [Problem(("segment", "gpus"), what, f"use one of {_divisors(spec.gpus)}")]


def _parallel(spec: "JobSpec") -> list[Problem]:
    cut = spec.parallel
    if cut is None:
        return []
    ranks = cut.tp * cut.pp * cut.cp
    if spec.gpus % ranks:
        what = f"tp * pp * cp = {ranks} must divide the job's {spec.gpus} GPUs"
        return [Problem(("parallel",), what, "change tp, pp or cp, or gpus")]
    # Necessary for every layout of experts: they are cut from the ranks of one pipeline stage.
    if (spec.gpus // cut.pp) % cut.ep:
        what = f"must divide the {spec.gpus // cut.pp} ranks of a pipeline stage (gpus / pp); {cut.ep} does not"
        return [Problem(("parallel", "ep"), what, f"use one of {_divisors(spec.gpus // cut.pp)}")]
    return []


def _spread(spec: "JobSpec") -> list[Problem]:
    if isinstance(spec.spread, str):
        return []
    parts, name = (spec.gpus // spec.segment.gpus, "segment") if spec.segment else (spec.gpus, "GPU")
    if spec.spread.racks <= parts:
        return []
    what = f"{spec.spread.racks} racks are more than the job has {name}s ({parts}); each rack must get one"
    return [Problem(("spread", "racks"), what, f"ask for {parts} or fewer")]


def _env(spec: "JobSpec") -> list[Problem]:
    problems = []
    for name in spec.env:
        if not _ENV_NAME.fullmatch(name):
            problems.append(Problem(("env", name), "is not the name of an environment variable", "use A-Z, 0-9 and _"))
        elif name in RESERVED_ENV or name.startswith(_RESERVED_PREFIXES):
            problems.append(Problem(("env", name), "is set by Rackyard for every rank", "leave it out"))
    return problems
