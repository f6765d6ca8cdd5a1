"""What a generated trace is made from: every parameter with its default and its meaning, checked."""

import math
from dataclasses import Field, dataclass, field, fields

from rackyard.errors import UsageError

Weighted = tuple[tuple[int, float], ...]

_SIZES: Weighted = (
    (1, 0.5),
    (2, 0.08),
    (4, 0.14),
    (8, 0.12),
    (16, 0.06),
    (32, 0.04),
    (64, 0.03),
    (128, 0.015),
    (256, 0.008),
    (512, 0.004),
    (1024, 0.002),
    (2048, 0.001),
)
"""Median 1 and mean 16 GPUs: between Acme's Seren (1 and 5.7) and Kalos (1 and 27). Above 64 each size has half the
jobs of the one below, so that all of them have the same share of GPUs."""

MAX_JOBS = 5_000_000
"""Jobs in one generated trace: 2 GB of memory."""


def _of(meaning: str) -> dict[str, str]:
    return {"meaning": meaning}


@dataclass(frozen=True, slots=True)
class Generator:
    """Parameters of a generated trace; `describe` gives the meaning of each. UsageError for what makes no trace."""

    seed: int = field(default=0, metadata=_of("start of the random numbers: the same seed gives the same trace"))
    jobs: int = field(default=10_000, metadata=_of("gangs in the trace"))
    gpus: int = field(default=10_080, metadata=_of("GPUs of the site, which the load is a share of (140 racks)"))
    load: float = field(default=0.9, metadata=_of("work offered per GPU of the site and second of the window"))
    gpus_per_node: int = field(default=4, metadata=_of("GPUs of a node; gangs above one node take whole nodes"))
    largest: int = field(default=2048, metadata=_of("GPUs of the largest gang; larger sizes are never drawn"))
    sizes: Weighted = field(
        default=_SIZES, metadata=_of("GPUs and share of the jobs; shaped after Acme's and Helios' mean and median")
    )
    median: float = field(default=90.0, metadata=_of("seconds that half of the one-GPU jobs stay under"))
    growth: float = field(
        default=0.4, metadata=_of("the median grows with GPUs to this power; 0.4 gives Seren's GPU time a job")
    )
    sigma: float = field(
        default=2.2, metadata=_of("spread of the log of run times; 2.2 is Seren's mean over its median")
    )
    shortest: float = field(default=10.0, metadata=_of("seconds; shorter run times are raised to it (assumed)"))
    longest: float = field(default=259_200.0, metadata=_of("seconds; longer run times are cut to it (assumed, 3 days)"))
    daily: float = field(
        default=0.0, metadata=_of("daily cycle of arrivals: 0 none, 0.5 three times as many at noon as at midnight")
    )
    segments: tuple[tuple[int, int], ...] = field(
        default=((128, 16), (32, 4), (1, 1)),
        metadata=_of("nodes of a segment by the GPUs of the gang (NVIDIA's advice for Slurm's block topology)"),
    )
    priorities: Weighted = field(
        default=((0, 0.75), (1, 0.2), (2, 0.05)), metadata=_of("priority and share of the jobs (assumed)")
    )
    teams: int = field(default=8, metadata=_of("teams; the second has half the jobs of the first, the third a third"))
    checkpoint_every: float = field(default=1800.0, metadata=_of("seconds between checkpoints (assumed)"))

    def __post_init__(self) -> None:
        """Refuse what makes no trace."""
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and least <= value <= most):
                raise _wrong(name, value, f"expected {least:g} to {most:g}")
        for name in ("sizes", "priorities"):
            weights = [weight for _, weight in getattr(self, name)]
            if not weights or min(weights) < 0 or not math.isfinite(sum(weights)) or sum(weights) <= 0:
                raise _wrong(name, getattr(self, name), "expected values with shares that are not all 0")
        if min(gpus for gpus, _ in self.sizes) < 1 or not self.sizes_in_use():
            raise _wrong("sizes", self.sizes, "expected sizes from 1 GPU, one of them within the site and `largest`")
        if any(least < 1 or nodes < 1 for least, nodes in self.segments):
            raise _wrong("segments", self.segments, "expected pairs of GPUs and nodes, from 1 each")
        if self.shortest > self.longest:
            raise _wrong("shortest", self.shortest, f"longer than `longest`, {self.longest:g}")

    def sizes_in_use(self) -> Weighted:
        """Sizes that fit, on whole nodes, in the site and below `largest`."""
        most, node = min(self.gpus, self.largest), self.gpus_per_node
        return tuple(
            (gpus, share)
            for gpus, share in self.sizes
            if share > 0 and (gpus if gpus <= node else math.ceil(gpus / node) * node) <= most
        )

    def by_size(self) -> tuple[tuple[int, int], ...]:
        """`segments`, largest gangs first."""
        return tuple(sorted(self.segments, reverse=True))

    def describe(self) -> tuple[tuple[str, str, str], ...]:
        """Every parameter: its name, its value as text, and what it means."""
        return tuple((each.name, _shown(each, getattr(self, each.name)), each.metadata["meaning"]) for each in _ALL)


_ALL = fields(Generator)

_RANGES: dict[str, tuple[float, float]] = {
    "jobs": (1, MAX_JOBS),
    "gpus": (1, 10_000_000),
    "load": (0.001, 100),
    "gpus_per_node": (1, 32),  # a GPU mask has 32 bits
    "largest": (1, 10_000_000),
    "median": (0.001, 1e8),
    "growth": (-2, 2),
    "sigma": (0, 10),
    "shortest": (0.001, 1e9),
    "longest": (0.001, 1e9),
    "daily": (0, 0.99),
    "teams": (1, 10_000),
    "checkpoint_every": (0.001, 1e9),
}


def _shown(each: "Field[object]", value: object) -> str:
    if not isinstance(value, tuple):
        return f"{value:,}" if isinstance(value, int) and each.name != "seed" else str(value)
    if each.name == "segments":
        return ", ".join(f"{nodes} from {least:,} GPUs" for least, nodes in value)
    total = sum(share for _, share in value)
    return ", ".join(f"{number:,}: {100 * share / total:.3g} %" for number, share in value)


def _wrong(name: str, value: object, why: str) -> UsageError:
    text = str(value)
    return UsageError(f"{name} is {text if len(text) <= 60 else text[:59] + '…'}", why=why, fix=f"change {name}")
