"""Traces replayed on a site under the rules of several schedulers, side by side."""

from rackyard.placement.replay.bench import Timing, bench
from rackyard.placement.replay.events import Failure, by_rate, check_rate, read_failures
from rackyard.placement.replay.ledger import Account, Timeline
from rackyard.placement.replay.metrics import Metrics, labels, measure
from rackyard.placement.replay.outcome import Replay, Rules
from rackyard.placement.replay.policies import POLICIES, Policy, named
from rackyard.placement.replay.prepare import Wanted, all_gpus, fitted, generator_of, is_generated, reach, rows_of
from rackyard.placement.replay.simulate import simulate

__all__ = [
    "POLICIES",
    "Account",
    "Failure",
    "Metrics",
    "Policy",
    "Replay",
    "Rules",
    "Timeline",
    "Timing",
    "Wanted",
    "all_gpus",
    "bench",
    "by_rate",
    "check_rate",
    "fitted",
    "generator_of",
    "is_generated",
    "labels",
    "measure",
    "named",
    "reach",
    "read_failures",
    "rows_of",
    "simulate",
]
