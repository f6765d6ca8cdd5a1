"""The local backend: simulated nodes on one machine, real processes.

The exports are loaded on first use, because the agents are started as modules of this package and must not
pay for what only the controller needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rackyard.backends.local.backend import LocalBackend
    from rackyard.backends.local.simfaults import FaultKind, FaultTarget, inject

__all__ = ["FaultKind", "FaultTarget", "LocalBackend", "inject"]

_HOME = {
    "LocalBackend": "backend",
    "FaultKind": "simfaults",
    "FaultTarget": "simfaults",
    "inject": "simfaults",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
