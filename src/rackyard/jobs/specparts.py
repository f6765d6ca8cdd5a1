"""The sections of the job spec. The text under each field is its documentation, as in `rackyard.jobs.spec`."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from rackyard.jobs.spectypes import Duration, Every, EveryValue, NodeNames, PathText

Count = Annotated[int, Field(ge=1, le=1_000_000)]
CountFromZero = Annotated[int, Field(ge=0, le=1_000_000)]
Weight = Annotated[int, Field(ge=0, le=1000)]


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


class RankGroup(Section):
    """Runs of consecutive ranks that should sit together, each longer than a segment."""

    gpus: Count
    """GPUs in a run: divides the job's `gpus`, and is a multiple of the segment's."""
    within: Literal["leaf", "block", "part"]
    """What a run should not cross: `leaf`, the leaf switches that serve the same nodes; `block`, the spines above
    them; `part`, the core switches above those."""
    required: bool = False
    """true: wait until no run crosses it; false: prefer it, but start without."""


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
    dp_weight: Weight = 1
    """What every further NVLink domain that a data parallel group spans costs, when the ranks are placed."""
    pp_weight: Weight = 1
    """The same for the ranks of one pipeline: larger than `dp_weight` where the stages send each other more."""


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


class Nodes(Section):
    """Which nodes the job may have, by name."""

    pin: NodeNames = ()
    """Nodes that must be part of the gang."""
    exclude: NodeNames = ()
    """Nodes that must not be."""
    exclude_racks: NodeNames = ()
    """Racks none of whose nodes may be."""


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
