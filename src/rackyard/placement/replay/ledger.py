"""What a replay writes down: one account a job, and what the site looked like over time."""

from dataclasses import dataclass, field

from rackyard.placement.replay.free import Scales
from rackyard.placement.replay.spans import Span
from rackyard.placement.yard import Yard


@dataclass(slots=True)
class Account:
    """One job. Times are seconds after the start of the trace, work is GPU-seconds."""

    name: str
    gpus: int
    submit: float
    duration: float
    started: float | None = None
    """The first start; None: it never had seats."""
    ended: float | None = None
    remaining: float = 0.0
    """Seconds of work not yet done and saved."""
    used: float = 0.0
    """GPU-seconds on its seats, restarts and lost work included."""
    useful: float = 0.0
    """GPU-seconds of work that was saved by a checkpoint or by the end."""
    lost: float = 0.0
    """GPU-seconds of work done since the last checkpoint when a node failed."""
    faults: int = 0
    """Failures that stopped it."""
    preempted: int = 0
    """How often it was stopped for another gang."""
    cut: float = 0.0
    """GPU-seconds of work done since the last checkpoint when it was."""
    moved: int = 0
    """How often it went on at once, on mended seats, after a failure."""
    spans: list[Span] = field(default_factory=list)
    """One for each placement."""


@dataclass(slots=True)
class Timeline:
    """Integrals over the window from the first to the last submission, in which the offered load is what the trace
    says; later the site only drains.
    """

    begin: float
    end: float
    now: float = 0.0
    """How far it has been summed up."""
    busy: float = 0.0
    """GPU-seconds in use."""
    available: float = 0.0
    """GPU-seconds of nodes in service."""
    free: float = 0.0
    """Seconds in which any whole node was free."""
    in_domain: float = 0.0
    """Largest gang in one domain, in node-seconds, while any node was free; the next one in 16-node segments."""
    in_segments: float = 0.0
    free_nodes: float = 0.0
    domain_share: float = 0.0
    segment_share: float = 0.0

    def pass_time(self, until: float, yard: Yard, scales: Scales, busy: int) -> None:
        """The site has been like this since `now` and is until `until`; `busy` GPUs are in use."""
        seconds = min(until, self.end) - max(self.now, self.begin)
        self.now = until
        if seconds <= 0:
            return
        self.busy += seconds * busy
        self.available += seconds * scales.gpus(yard)
        shards = scales.shards(yard)
        if shards.nodes:
            self.free += seconds
            self.free_nodes += seconds * shards.nodes
            self.in_domain += seconds * shards.in_domain
            self.in_segments += seconds * shards.in_segments
            self.domain_share += seconds * shards.domain_share
            self.segment_share += seconds * shards.segment_share
