"""What a job asks of placement, as the annotation of its pods."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rackyard.controller.request import request_of
from rackyard.placement import Request
from rackyard.placement.record import request_data

_PODS_SAY = ("gpus", "gpus_per_node")


def annotation(spec: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """Only what differs from a request's defaults; `spec` is the job file as data. Jobs to stay apart from are named
    as the controller on the cluster names them.
    """
    asked = request_of(spec)
    asked = replace(asked, apart=frozenset(f"{namespace}/{name}" for name in asked.apart))
    plain = request_data(Request(gpus=asked.gpus))
    return {key: value for key, value in request_data(asked).items() if key not in _PODS_SAY and value != plain[key]}
