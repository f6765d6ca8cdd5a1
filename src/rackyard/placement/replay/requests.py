"""A job of a trace as a request for seats."""

from rackyard.placement.model import Request
from rackyard.placement.traces import TraceJob


def request_of(job: TraceJob) -> Request:
    """What the job needs. Its segments are required, its team and the kinds of GPU of its old home do not matter."""
    return Request(job.gpus, segment_gpus=job.segment_gpus, gpus_per_node=job.gpus_per_node)
