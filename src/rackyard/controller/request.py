"""From a job file to a placement request. Jobs stored before a key was known don't have it."""

from collections.abc import Mapping
from typing import Any

from rackyard.placement import Group, Parallel, Request


def attempts_allowed(spec: Mapping[str, Any]) -> int:
    """Attempts in all that the job may make; `spec` is the job file as data."""
    return int(spec["recover"]["attempts"])


def request_of(spec: Mapping[str, Any]) -> Request:
    """What the job asks of placement; `spec` is the job file as data."""
    segment = spec["segment"] or {}
    spread = spec["spread"]
    rails = spec["rails"]
    nodes = spec.get("nodes") or {}
    copies = 1 + int((spec["checkpoint"] or {}).get("replicas", 0))
    return Request(
        gpus=int(spec["gpus"]),
        segment_gpus=segment.get("gpus"),
        segment_required=bool(segment.get("required", True)),
        groups=tuple(Group(group["gpus"], group["within"], group["required"]) for group in spec.get("groups", ())),
        parallel=_parallel(spec["parallel"]),
        spread=int(spread["racks"]) if isinstance(spread, Mapping) else "pack" if spread == "isolate" else spread,
        copies=copies if spread == "isolate" else 1,
        exclusive=bool(spec.get("exclusive", False)),
        pin=frozenset(nodes.get("pin", ())),
        exclude=frozenset(nodes.get("exclude", ())),
        exclude_racks=frozenset(nodes.get("exclude_racks", ())),
        apart=frozenset(spec.get("apart", ())),
        rails="any" if rails == "any" else "aligned",
        rail=rails if isinstance(rails, int) else None,
        spares=int(spec["recover"]["spares"]),
        gpu_kind=spec["gpu"],
        gpu_memory=float(spec.get("gpu_memory") or 0),
        nic_gbps=int(spec.get("nic_gbps") or 0),
        domain_gpus=int(spec.get("domain_gpus") or 0),
    )


def _parallel(cut: Mapping[str, Any] | None) -> Parallel | None:
    if cut is None:
        return None
    known = ("tp", "pp", "cp", "ep", "dp_weight", "pp_weight")
    return Parallel(**{name: int(cut[name]) for name in known if name in cut})
