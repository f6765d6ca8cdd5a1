"""From a job file to a placement request."""

from collections.abc import Mapping
from typing import Any

from rackyard.placement import Request


def attempts_allowed(spec: Mapping[str, Any]) -> int:
    """Attempts in all that the job may make; `spec` is the job file as data."""
    return int(spec["recover"]["attempts"])


def request_of(spec: Mapping[str, Any]) -> Request:
    """What the job asks of placement; `spec` is the job file as data."""
    segment = spec["segment"] or {}
    spread = spec["spread"]
    rails = spec["rails"]
    return Request(
        gpus=int(spec["gpus"]),
        segment_gpus=segment.get("gpus"),
        segment_required=bool(segment.get("required", True)),
        spread=int(spread["racks"]) if isinstance(spread, Mapping) else spread,
        rails="any" if rails == "any" else "aligned",
        rail=rails if isinstance(rails, int) else None,
        spares=int(spec["recover"]["spares"]),
        gpu_kind=spec["gpu"],
    )
