"""What a gang asks of the hardware, and what there is: which key is out of reach here."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from rackyard.placement.change import HARDWARE, Advice, Change, tried
from rackyard.placement.columns import Columns
from rackyard.placement.model import Request
from rackyard.placement.tries import TRIES, could
from rackyard.placement.yard import Yard

_THERE = {
    "gpu_memory": ("the GPUs here have", "GiB"),
    "nic_gbps": ("the NICs here reach", "Gb/s"),
    "domain_gpus": ("the NVLink domains here have", "GPUs"),
}
_SHOWN = 3


def asked(request: Request) -> tuple[str, ...]:
    """The keys by which the request asks for hardware."""
    return tuple(key for key in HARDWARE if getattr(request, key))


def demand(request: Request) -> str:
    """`gpu_memory: 300, nic_gbps: 800`."""
    return ", ".join(f"{key}: {getattr(request, key):g}" for key in asked(request))


def shortage(request: Request, yard: Yard) -> str:
    """`gpu_memory: 300, but the GPUs here have 268.2 GiB`, for each key that binds."""
    told = []
    for key in _binding(request, yard):
        phrase, unit = _THERE[key]
        values = [value for value in _there(request, yard.columns, key) if value]
        have = " or ".join(f"{value:g}" for value in values[:_SHOWN])
        have = f"{phrase} {have} {unit}" if values else "nobody said what there is here"
        told.append(f"{key}: {getattr(request, key):g}, but {have}")
    return "; ".join(told)


def unmet(request: Request, columns: Columns) -> tuple[str, ...]:
    """The keys that ask for more than any node has."""
    return tuple(key for key in asked(request) if getattr(request, key) > max(_there(request, columns, key), default=0))


def less(request: Request, yard: Yard) -> Advice:
    """The most of it that fits now; else which keys to ask less of."""
    keys = _binding(request, yard)
    found = _most(request, yard, keys)
    if found is not None:
        return Advice(found.sentence(), (found,))
    most = (f"`{key}: {max(_there(request, yard.columns, key), default=0):g}`" for key in keys)
    return Advice(f"ask for {' and '.join(most)} at most, which is what there is")


def _most(request: Request, yard: Yard, keys: Sequence[str]) -> Change | None:
    if len(keys) > 1:
        most = {key: max(_there(request, yard.columns, key), default=0) for key in keys}
        return tried(request, _asking(request, {key: min(most[key], getattr(request, key)) for key in keys}), yard)
    values = [value for value in _there(request, yard.columns, keys[0]) if value < getattr(request, keys[0])]
    for value in [*values[:TRIES], 0]:
        found = tried(request, _asking(request, {keys[0]: value}), yard)
        if found is not None:
            return found
    return None


def _binding(request: Request, yard: Yard) -> tuple[str, ...]:
    """The keys that no node meets; else one that would do if it were not asked for; else all."""
    keys = asked(request)
    alone = tuple(key for key in keys if could(_asking(request, {key: 0}), yard))
    return unmet(request, yard.columns) or alone[:1] or keys


def _asking(request: Request, values: Mapping[str, float]) -> Request:
    return replace(
        request,
        gpu_memory=values.get("gpu_memory", request.gpu_memory),
        nic_gbps=int(values.get("nic_gbps", request.nic_gbps)),
        domain_gpus=int(values.get("domain_gpus", request.domain_gpus)),
    )


def _there(request: Request, columns: Columns, key: str) -> list[float]:
    """What nodes of the kind have, most first; GiB cut to a tenth, so that asking for it finds it."""
    kinds = [kind for kind, group in enumerate(columns.classes) if request.gpu_kind in (None, group.gpu)]
    mine = np.isin(columns.kind, kinds)
    if key == "gpu_memory":
        tenths = np.unique(np.floor(columns.memory[mine] * 10))
        return [float(tenth) / 10 for tenth in tenths[::-1]]
    values = columns.nic if key == "nic_gbps" else columns.domain_gpus[columns.pool]
    return [float(value) for value in np.unique(values[mine])[::-1]]
