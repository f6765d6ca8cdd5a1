"""The job spec: what a user asks for, checked at the edge and frozen from there on.

`load_spec` and `parse_spec` (in `rackyard.jobs.specfile`) read it from YAML; `to_dict` and `from_dict` are
the form kept in events. The text under each field is its documentation: the reference page, the JSON Schema
and `rackyard config explain` are all made from it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from rackyard.jobs.specchecks import cross_problems
from rackyard.jobs.specerrors import spec_error
from rackyard.jobs.specparts import (
    Checkpoint,
    Count,
    Nodes,
    Parallel,
    RankGroup,
    Recover,
    Section,
    Segment,
    Slow,
    Watch,
)
from rackyard.jobs.spectypes import (
    STORED,
    Command,
    DnsLabel,
    Duration,
    EnvValue,
    Every,
    GpuKind,
    ModuleName,
    PathText,
    RailsValue,
    Spread,
    SpreadValue,
)


class JobSpec(Section):
    """One training job."""

    name: DnsLabel
    """The job's name, a DNS label: lower-case letters, digits and dashes, at most 63. Absent: the file's name."""
    run: Command
    """The command each rank runs. Text that needs a shell (pipes, variables, several lines) is given to /bin/sh."""
    gpus: Count
    """GPUs in all, one rank on each. Nodes and racks follow from it."""
    gpu: GpuKind | None = None
    """Kind of GPU to use, such as GB300; absent: any, but the same for all ranks."""
    gpu_memory: Annotated[float, Field(gt=0, le=100_000)] | None = None
    """GiB of memory that every GPU must have at least; absent: not asked for."""
    nic_gbps: Count | None = None
    """Gb/s that the NIC of every rank must have at least; absent: not asked for."""
    domain_gpus: Count | None = None
    """GPUs that the NVLink domain of every rank must have at least, such as 72; absent: not asked for."""
    segment: Segment | None = None
    """The part of the gang that must sit inside one NVLink domain; absent: no such part."""
    groups: Annotated[tuple[RankGroup, ...], Field(strict=False)] = ()
    """Runs of consecutive ranks, longer than segments, that should sit together: one entry for each of leaf, block and
    part at most."""
    spread: SpreadValue = "pack"
    """`pack`: as few racks as possible; `spread`: as many as possible; `{racks: 2}`: exactly so many; `isolate`:
    the copies of a checkpoint (1 + `checkpoint.replicas`) in different racks."""
    exclusive: bool = False
    """true: the job has whole NVLink domains, and shares no rack with another job."""
    apart: Annotated[tuple[DnsLabel, ...], Field(strict=False, max_length=1000)] = ()
    """Names of jobs on whose racks this job must not sit."""
    nodes: Nodes = Nodes()
    """Which nodes the job may have, by name."""
    rails: RailsValue = "aligned"
    """`aligned`: the same local GPU index of every node is on the same rail; `any`: not asked for; the number of a
    rail, from 0: aligned, and every node must have a healthy NIC on this rail."""
    parallel: Parallel | None = None
    """How the training framework cuts the model; absent: not told."""
    checkpoint: Checkpoint | None = None
    """Where checkpoints are; absent: the job starts from nothing after a fault."""
    recover: Recover = Recover()
    """What may be done when a fault hits the job."""
    watch: Watch = Watch()
    """What is watched while the job runs."""
    warm: Annotated[tuple[ModuleName, ...], Field(strict=False, max_length=64)] | None = None
    """Python modules imported before the ranks are forked. Absent: torch and what its optimizers bring in, for a
    Python command; `[]`: no fork."""
    queue: DnsLabel = "default"
    """The queue the job waits in."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Higher goes first."""
    estimate: Duration | None = None
    """How long the job is expected to run. With it, the job may start ahead of one that waits for room, where it ends
    before that room is free (backfilling); absent: it may not."""
    env: dict[str, EnvValue] = Field(default_factory=dict, max_length=1000)
    """Environment variables of every rank. What Rackyard sets itself (RANK, WORLD_SIZE, ...) is refused."""
    workdir: PathText = "."
    """Where the command runs; a relative one starts at the job file's folder."""
    target: Literal["local"] = "local"
    """What runs the job. Today only `local`; Kubernetes and Slurm are planned."""

    @model_validator(mode="after")
    def _check_across(self) -> Self:
        if problems := cross_problems(self):
            raise PydanticCustomError("cross", "{text}", {"text": problems[0].what, "problems": tuple(problems)})
        return self

    def to_dict(self) -> dict[str, Any]:
        """The whole spec with its defaults as JSON values, durations in seconds: what events keep.

        `checkpoint.every` stays text (`20 steps`, `10m`, `auto`), read by `Every.parse`.
        """
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, origin: str = "job") -> "JobSpec":
        """The spec that `to_dict` wrote, or one built in code; `origin` names it in errors.

        Raises:
            rackyard.errors.SpecError: the same as for a file, without line and column.
        """
        try:
            return cls.model_validate(dict(data), context=STORED)
        except ValidationError as error:
            raise spec_error(error, cls, origin) from None

    @property
    def segments(self) -> int:
        """How many segments the gang has; 1 where none is asked for."""
        return self.gpus // self.segment.gpus if self.segment else 1

    @property
    def data_parallel(self) -> int:
        """Data parallel ranks: what tensor, pipeline and context parallel leave of `gpus`."""
        cut = self.parallel or Parallel()
        return self.gpus // (cut.tp * cut.pp * cut.cp)


__all__ = [
    "Checkpoint",
    "Every",
    "JobSpec",
    "Nodes",
    "Parallel",
    "RankGroup",
    "Recover",
    "Segment",
    "Slow",
    "Spread",
    "Watch",
]
