"""The job spec: what a user asks for, checked at the edge and frozen from there on.

`load_spec` and `parse_spec` (in `rackyard.jobs.specfile`) read it from YAML; `to_dict` and `from_dict` are
the form kept in events. The text under each field is its documentation: the reference page, the JSON Schema
and `rackyard config explain` are all made from it.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from rackyard.jobs.specchecks import cross_problems
from rackyard.jobs.specerrors import spec_error
from rackyard.jobs.spectypes import (
    STORED,
    Command,
    DnsLabel,
    Duration,
    EnvValue,
    Every,
    EveryValue,
    GpuKind,
    ModuleName,
    PathText,
    RailsValue,
    Spread,
    SpreadValue,
)

Count = Annotated[int, Field(ge=1, le=1_000_000)]
CountFromZero = Annotated[int, Field(ge=0, le=1_000_000)]


class Section(BaseModel):
    """What all parts of the spec share: unknown keys are errors, nothing is coerced, nothing changes later."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


class Segment(Section):
    """The part of the gang that must sit inside one NVLink domain."""

    gpus: Count
    """GPUs in a segment; divides the job's `gpus`."""
    required: bool = True
    """true: wait until every segment fits inside one domain; false: prefer it, but start without."""


class Parallel(Section):
    """How the training framework cuts the model. Data parallel is what remains: gpus / (tp * pp * cp)."""

    framework: Literal["ddp", "fsdp", "megatron", "deepspeed", "torchtitan"] | None = None
    """The framework the command uses; absent: not told."""
    tp: Count = 1
    """Tensor parallel ranks. Keep it inside a segment: it talks most."""
    pp: Count = 1
    """Pipeline stages."""
    cp: Count = 1
    """Context parallel ranks, for long sequences."""
    ep: Count = 1
    """Expert parallel ranks of a mixture-of-experts model; cut from the data parallel ranks."""


class Checkpoint(Section):
    """Where the job's checkpoints are and how often they are written.

    The command writes them: it finds these values in its environment as RACKYARD_CHECKPOINT_DIR, _EVERY and so on.
    """

    dir: PathText
    """Folder of the checkpoints; a relative one starts at `workdir`."""
    every: EveryValue = Field(default=Every(), json_schema_extra={"default": "auto"})
    """`20 steps`, a duration such as `10m`, or `auto`: left to the command."""
    keep: Count = 3
    """How many checkpoints to keep; older ones are deleted."""
    replicas: CountFromZero = 0
    """Copies kept in other fault domains, besides the first."""


class Recover(Section):
    """What may be done when a fault hits the job."""

    attempts: Count = 5
    """Attempts in all, the first one included."""
    spares: CountFromZero = 0
    """Nodes held free for this job, to replace a broken one without waiting."""
    mode: Literal["act", "observe"] = "act"
    """`act`: carry out the advice; `observe`: record the advice and leave the job alone."""


class Slow(Section):
    """When a rank counts as slow."""

    ratio: Annotated[float, Field(gt=1, le=100)] = 1.2
    """A rank is slow when its own work takes this many times the median rank's."""
    steps: Count = 20
    """Steps in a row for which that must hold."""


class Watch(Section):
    """What is watched while the job runs."""

    hang: Duration = Field(default=600.0, json_schema_extra={"default": "10m"})
    """A job whose ranks finish no step for this long hangs; it is recovered like a fault."""
    slow: Slow = Slow()
    """When a rank counts as slow."""


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
    segment: Segment | None = None
    """The part of the gang that must sit inside one NVLink domain; absent: no such part."""
    spread: SpreadValue = "pack"
    """`pack`: as few racks as possible; `spread`: as many as possible; `{racks: 2}`: exactly so many."""
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
    """Within a queue, higher goes first."""
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
    "Parallel",
    "Recover",
    "Segment",
    "Slow",
    "Spread",
    "Watch",
]
