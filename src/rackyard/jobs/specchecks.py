"""The rules of the job spec that need more than one key."""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rackyard.jobs.spec import JobSpec

Path = tuple[str | int, ...]
"""The keys and list positions that lead to a value, from the top of the file."""

SCOPES = ("leaf", "block", "part")
"""What a group of ranks may be kept within, the smaller first."""

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
    return [
        problem
        for check in (_segment, _groups, _parallel, _spread, _isolate, _apart, _nodes, _env)
        for problem in check(spec)
    ]


def _divisors(number: int, unit: int = 1) -> str:
    """Advice: the largest divisors of `number`, in multiples of `unit`, which divides it."""
    number //= unit
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    every = sorted({*small, *(number // d for d in small)})
    return f"use one of {', '.join(str(d * unit) for d in every[-8:])}"


def _segment(spec: "JobSpec") -> list[Problem]:
    if spec.segment is None or spec.gpus % spec.segment.gpus == 0:
        return []
    what = f"must divide the job's {spec.gpus} GPUs into equal segments; {spec.segment.gpus} does not"
    return [Problem(("segment", "gpus"), what, _divisors(spec.gpus))]


def _groups(spec: "JobSpec") -> list[Problem]:
    problems = []
    segment = spec.segment.gpus if spec.segment else 1
    # A segment that does not divide the job is told of by itself.
    fix = _divisors(spec.gpus, segment if spec.gpus % segment == 0 else 1)
    seen: set[str] = set()
    for at, group in enumerate(spec.groups):
        if group.within in seen:
            problems.append(
                Problem(("groups", at, "within"), f"{group.within} is given twice", "leave one of them out")
            )
        elif spec.gpus % group.gpus:
            what = f"must divide the job's {spec.gpus} GPUs into equal runs; {group.gpus} does not"
            problems.append(Problem(("groups", at, "gpus"), what, fix))
        elif group.gpus % segment:
            what = f"must be a multiple of the segment's {segment} GPUs; {group.gpus} is not"
            problems.append(Problem(("groups", at, "gpus"), what, fix))
        seen.add(group.within)
    return problems or _ascending(spec)


def _ascending(spec: "JobSpec") -> list[Problem]:
    rows = sorted(enumerate(spec.groups), key=lambda row: SCOPES.index(row[1].within))
    for (_, less), (at, more) in pairwise(rows):
        if more.gpus <= less.gpus:
            what = (
                f"the {more.gpus} GPUs within a {more.within} must be more than the {less.gpus} within a {less.within}"
            )
            return [Problem(("groups", at, "gpus"), what, f"a larger number, or leave out {less.within}")]
    return []


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
        return [Problem(("parallel", "ep"), what, _divisors(spec.gpus // cut.pp))]
    return []


def _spread(spec: "JobSpec") -> list[Problem]:
    if isinstance(spec.spread, str):
        return []
    parts, name = _pieces(spec)
    if spec.spread.racks <= parts:
        return []
    what = f"{spec.spread.racks} racks are more than the job has {name}s ({parts}); each rack must get one"
    return [Problem(("spread", "racks"), what, f"ask for {parts} or fewer")]


def _pieces(spec: "JobSpec") -> tuple[int, str]:
    """In how many racks the gang can be at most, and what one of these pieces is."""
    return (spec.gpus // spec.segment.gpus, "segment") if spec.segment else (spec.gpus, "GPU")


def _isolate(spec: "JobSpec") -> list[Problem]:
    if spec.spread != "isolate":
        return []
    replicas = spec.checkpoint.replicas if spec.checkpoint else 0
    if replicas < 1:
        what = "isolate puts the copies of a checkpoint into different racks, and the job keeps one copy only"
        return [Problem(("spread",), what, "set checkpoint.replicas to 1 or more")]
    parts, name = _pieces(spec)
    if replicas < parts:
        return []
    what = f"{replicas + 1} copies in different racks are more than the job has {name}s ({parts})"
    return [Problem(("checkpoint", "replicas"), what, f"at most {parts - 1}" if parts > 1 else "leave out isolate")]


def _apart(spec: "JobSpec") -> list[Problem]:
    return [
        Problem(("apart", at), "is this job itself", "name other jobs")
        for at, name in enumerate(spec.apart)
        if name == spec.name
    ]


def _nodes(spec: "JobSpec") -> list[Problem]:
    excluded = set(spec.nodes.exclude)
    problems = [
        Problem(("nodes", "pin", at), f"{name} is excluded as well", "name it in one of the two")
        for at, name in enumerate(spec.nodes.pin)
        if name in excluded
    ]
    pinned = len(set(spec.nodes.pin))
    if pinned > spec.gpus:
        what = f"{pinned} nodes are more than the job has GPUs ({spec.gpus}); each node must get one"
        problems.append(Problem(("nodes", "pin"), what, f"pin {spec.gpus} or fewer"))
    return problems


def _env(spec: "JobSpec") -> list[Problem]:
    problems = []
    for name in spec.env:
        if not _ENV_NAME.fullmatch(name):
            problems.append(Problem(("env", name), "is not the name of an environment variable", "use A-Z, 0-9 and _"))
        elif name in RESERVED_ENV or name.startswith(_RESERVED_PREFIXES):
            problems.append(Problem(("env", name), "is set by Rackyard for every rank", "leave it out"))
    return problems
