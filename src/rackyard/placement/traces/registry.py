"""Every trace that can be read, told by its header or shape, and those that look like one and are not."""

from collections.abc import Callable
from dataclasses import dataclass

from rackyard.errors import UsageError, Where
from rackyard.placement.traces import alibaba, gavel, philly, slurmlog, tiresias
from rackyard.placement.traces.job import Trace
from rackyard.placement.traces.table import check_size, header_of


@dataclass(frozen=True, slots=True)
class Format:
    """A trace in CSV: known by columns that its header must have."""

    name: str
    columns: frozenset[str]
    read: Callable[[str, str], Trace]


FORMATS = (
    Format("Alibaba 2023 pods (openb_pod_list_*.csv)", alibaba.PODS, alibaba.read_pods),
    Format("Alibaba 2025 recommendation (disaggregated_DLRM_trace.csv)", alibaba.INSTANCES, alibaba.read_instances),
    Format("Alibaba 2026 spot jobs (job_info_df.csv)", alibaba.SPOT, alibaba.read_spot),
    Format("Helios or Acme job log (cluster_log.csv, trace_*.csv)", slurmlog.COLUMNS, slurmlog.read),
    Format("Tiresias job list (*_job.csv)", tiresias.COLUMNS, tiresias.read),
)

OTHERS = ("Philly job log (cluster_job_log, JSON)", "Philly through gavel (*.trace, seven fields between tabs)")
"""What is known by its shape instead of a header."""


_HEAD = 64 * 1024
"""Characters that are looked at to tell what a file is."""


@dataclass(frozen=True, slots=True)
class _NoJobs:
    """A published file of the same data sets that lists no jobs."""

    columns: frozenset[str]
    what: str
    fix: str


_NO_JOBS = (
    _NoJobs(
        frozenset({"time", "submit_gpu_job", "start_gpu_job"}),
        "a count of Helios jobs every ten minutes (cluster_throughput.csv), not a list of jobs",
        "give cluster_log.csv of the same cluster, from S-Lab-System-Group/HeliosData",
    ),
    _NoJobs(
        frozenset({"id", "gpu_job_num", "avg_gpu_num"}),
        "Acme's averages of five clusters (cluster_summary.csv), not a list of jobs",
        "give trace_seren.csv or trace_kalos.csv, from InternLM/AcmeTrace; or generate a trace of that shape",
    ),
    _NoJobs(
        frozenset({"date", "total"}),
        "the GPUs of Helios by day (cluster_gpu_number.csv), not a list of jobs",
        "give cluster_log.csv of the same cluster, from S-Lab-System-Group/HeliosData",
    ),
    _NoJobs(
        frozenset({"sn", "gpu", "model"}),
        "Alibaba's list of nodes of 2023 (openb_node_list_*.csv), not a list of jobs",
        "give openb_pod_list_default.csv, which lies beside it",
    ),
    _NoJobs(
        frozenset({"node_name", "gpu_model", "gpu_capacity_num"}),
        "Alibaba's list of nodes of 2026 (node_info_df.csv), not a list of jobs",
        "give job_info_df.csv, which lies beside it",
    ),
    _NoJobs(
        frozenset({"ip", "DSW", "PSW", "ASW"}),
        "the switches above the hosts of Lingjun (topo.csv), not a list of jobs",
        "give a job trace",
    ),
)


def known() -> tuple[str, ...]:
    """The traces that can be read, for people."""
    return (*(each.name for each in FORMATS), *OTHERS)


def read_trace(text: str, origin: str) -> Trace:
    """The trace in `text`, by whichever reader knows it; `origin` names it in errors.

    Raises:
        UsageError: no known trace, a file that lists no jobs, or longer than MAX_CHARS.
        SpecError: a malformed row, with line and column.
    """
    check_size(text, origin)
    first, line = _first_line(text)
    if first.lstrip()[:1] in ("[", "{") and '"attempts"' in text[:_HEAD]:
        return philly.read(text, origin)
    header = frozenset(header_of(first))
    for each in FORMATS:
        if each.columns <= header:
            return each.read(text, origin)
    for other in _NO_JOBS:
        if other.columns <= header:
            raise UsageError(f"this is {other.what}", where=Where(origin, line), fix=other.fix)
    if first.count("\t") == len(gavel.COLUMNS) - 1:
        return gavel.read(text, origin)
    raise _unknown(first, header, Where(origin, line))


def _first_line(text: str) -> tuple[str, int]:
    """The first line that is not blank, no more of it than a head, and its number."""
    at = 1 if text.startswith("\ufeff") else 0
    line = 1
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        if text[at : min(end, at + 1024)].strip():
            return text[at : min(end, at + _HEAD)].rstrip("\r"), line
        at, line = end + 1, line + 1
    return "", 1


def _unknown(first: str, header: frozenset[str], where: Where) -> UsageError:
    fix = "give one of: " + "; ".join(known())
    if not first:
        return UsageError("the trace is empty", where=where, fix=fix)
    nearest = max(FORMATS, key=lambda each: len(each.columns & header))
    missing = sorted(nearest.columns - header)
    if 2 * len(missing) <= len(nearest.columns):
        why = f"it is nearest to {nearest.name}, but its header lacks {', '.join(missing)}"
    else:
        why = f"it begins with {first[:60]!r}{'…' if len(first) > 60 else ''}"
    return UsageError("no job trace that is known here", where=where, why=why, fix=fix)
