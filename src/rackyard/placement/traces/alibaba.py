"""Alibaba's three GPU traces: pods of a shared cluster (2023), recommendation inference (2025), spot jobs (2026).

Columns and their meaning are those of the README beside each file in alibaba/clusterdata (cluster-trace-gpu-v2023,
cluster-trace-gpu-v2025, cluster-trace-v2026-spot-gpu).
"""

import math

from rackyard.placement.traces.gather import NEVER_RAN, Gather
from rackyard.placement.traces.job import Trace, TraceJob
from rackyard.placement.traces.table import Row, rows

PODS = frozenset({"name", "num_gpu", "gpu_milli", "creation_time", "scheduled_time", "deletion_time"})
INSTANCES = frozenset({"instance_sn", "app_name", "gpu_request", "creation_time", "scheduled_time", "deletion_time"})
SPOT = frozenset({"job_name", "worker_num", "gpu_request", "submit_time", "duration"})

_HIGH = frozenset({"LS", "Guaranteed"})
_WHOLE_GPUS = "a share of a GPU rounded up to one GPU"


def read_pods(text: str, origin: str) -> Trace:
    """The pod list of 2023 (`openb_pod_list_*.csv`). SpecError for malformed rows, with line and column."""
    gather = Gather(origin)
    for row in rows(text, origin):
        gpus = row.whole("num_gpu")
        submit, end = row.number("creation_time"), row.number("deletion_time")
        if gpus and not row.present("scheduled_time"):
            gather.drop(row.line, NEVER_RAN)
            continue
        start = row.number("scheduled_time") if row.present("scheduled_time") else submit
        name = row.text("name")
        if not gather.usable(row.line, name, gpus, end - start):
            continue
        if 0 < row.whole("gpu_milli") < 1000:
            gather.count(_WHOLE_GPUS)
        kind = row.text("gpu_spec") if row.present("gpu_spec") else ""
        priority = 1 if row.text("qos") in _HIGH else 0
        gather.jobs.append(TraceJob(name, submit, gpus, end - start, priority=priority, kind=kind))
    return gather.trace(
        "Alibaba 2023, pods of a shared GPU cluster",
        "duration = deletion − scheduled",
        "priority 1 for the latency-sensitive and guaranteed classes (LS, Guaranteed), 0 for the others",
    )


def read_instances(text: str, origin: str) -> Trace:
    """The recommendation trace of 2025: one long-running inference instance a row, most with no begin or no end.

    Who was there before the trace, or after it, is cut at its edges; leaving them out would empty the site of most of
    its load. SpecError for malformed rows, with line and column.
    """
    gather, last, open_ended = Gather(origin), 0.0, list[tuple[int, float, TraceJob]]()
    for row in rows(text, origin):
        times = {name: row.number(name) for name in _TIMES if row.present(name)}
        last = max((last, *times.values()))
        submit = times.get("creation_time", 0.0)
        start = times.get("scheduled_time", submit)
        gpus, name = math.ceil(row.number("gpu_request")), row.text("instance_sn")
        end = times.get("deletion_time")
        # Where there is no end any running time will do for now; the real one is known after the last row.
        if not gather.usable(row.line, name, gpus, 1.0 if end is None else end - start):
            continue
        _count_shares(gather, row)
        if "creation_time" not in times:
            gather.count("older than the trace, taken to come at its second 0")
        job = TraceJob(name, submit, gpus, 1.0 if end is None else end - start, team=row.text("app_name"))
        if end is None:
            gather.count("without an end, taken to run until the last time in the file")
            open_ended.append((row.line, start, job))
        else:
            gather.jobs.append(job)
    _close(gather, last, open_ended)
    return gather.trace("Alibaba 2025, disaggregated recommendation inference", "duration = deletion − scheduled")


_TIMES = ("creation_time", "scheduled_time", "deletion_time")


def _close(gather: Gather, last: float, open_ended: list[tuple[int, float, TraceJob]]) -> None:
    for line, start, job in open_ended:
        if last > start:
            gather.jobs.append(TraceJob(job.name, job.submit, job.gpus, last - start, team=job.team))
        else:
            gather.drop(line, "came at the very end of the trace")


def read_spot(text: str, origin: str) -> Trace:
    """The spot trace of 2026 (`job_info_df.csv`): gangs of `worker_num` workers, each with `gpu_request` GPUs.

    Written from the README; the file itself was not at hand. SpecError for malformed rows, with line and column.
    """
    gather = Gather(origin)
    for row in rows(text, origin):
        each = math.ceil(row.number("gpu_request"))
        gpus, name, duration = row.whole("worker_num") * each, row.text("job_name"), row.number("duration")
        if not gather.usable(row.line, name, gpus, duration):
            continue
        _count_shares(gather, row)
        gather.jobs.append(
            TraceJob(
                name,
                row.number("submit_time"),
                gpus,
                duration,
                team=row.text("organization"),
                priority=1 if row.text("job_type") == "HP" else 0,
                kind=row.text("gpu_model"),
                gpus_per_node=each,
            )
        )
    return gather.trace(
        "Alibaba 2026, spot and high-priority jobs",
        "GPUs = workers × GPUs a worker",
        "priority 1 for high-priority jobs (HP), 0 for spot",
    )


def _count_shares(gather: Gather, row: Row) -> None:
    if row.number("gpu_request") % 1:
        gather.count(_WHOLE_GPUS)
