"""Job traces: published ones read, fitted to a site, and made by chance where none is large enough."""

from rackyard.placement.traces.generate import generate
from rackyard.placement.traces.job import Dropped, Trace, TraceJob
from rackyard.placement.traces.parameters import Generator
from rackyard.placement.traces.registry import known, read_trace
from rackyard.placement.traces.scale import fit, load_of, stretch
from rackyard.placement.traces.table import MAX_CHARS

__all__ = [
    "MAX_CHARS",
    "Dropped",
    "Generator",
    "Trace",
    "TraceJob",
    "fit",
    "generate",
    "known",
    "load_of",
    "read_trace",
    "stretch",
]
