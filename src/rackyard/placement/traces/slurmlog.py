"""Job logs of Slurm as Helios (`cluster_log.csv`) and Acme (`trace_seren.csv`, `trace_kalos.csv`) publish them.

Columns are those of the READMEs of S-Lab-System-Group/HeliosData and InternLM/AcmeTrace. Both have a row for every
job, also for those without GPUs and those that failed or were cancelled: these held their GPUs all the same. Kalos
counts waiting into `duration` in its own README's rows (18 s for a job that ran 8 s), so the end and the start are
what counts here.
"""

import math

from rackyard.placement.traces.gather import NEVER_RAN, STILL_RUNNING, Gather
from rackyard.placement.traces.job import Trace, TraceJob
from rackyard.placement.traces.table import Row, rows

COLUMNS = frozenset({"job_id", "user", "gpu_num", "node_num", "submit_time", "start_time", "end_time"})


def read(text: str, origin: str) -> Trace:
    """The GPU jobs of such a log, second 0 being its first submission. SpecError for malformed rows."""
    gather, first, source = Gather(origin), math.inf, "Acme"
    for row in rows(text, origin):
        submit = row.moment("submit_time")
        first = min(first, submit)
        source = "Helios" if "vc" in row.header else "Acme"
        gpus = row.whole("gpu_num") if row.present("gpu_num") else 0
        why = "" if gpus == 0 else _unfinished(row)
        if why:
            gather.drop(row.line, why)
            continue
        duration = row.moment("end_time") - row.moment("start_time") if gpus else 0.0
        name = row.text("job_id")
        if gather.usable(row.line, name, gpus, duration):
            team = row.text("vc") or row.text("user")
            gather.jobs.append(TraceJob(name, submit, gpus, duration, team=team, gpus_per_node=_per_node(row, gpus)))
    gather.shift(first)
    return gather.trace(
        f"{source}, a Slurm job log",
        "duration = end − start; failed and cancelled jobs are kept, for they held their GPUs",
        f"team = {'virtual cluster (vc)' if source == 'Helios' else 'user'}",
    )


def _unfinished(row: Row) -> str:
    if not row.present("start_time"):
        return NEVER_RAN
    return "" if row.present("end_time") else STILL_RUNNING


def _per_node(row: Row, gpus: int) -> int | None:
    """GPUs on each node, where they divide evenly."""
    nodes = row.whole("node_num") if row.present("node_num") else 0
    return gpus // nodes if nodes and gpus % nodes == 0 else None
