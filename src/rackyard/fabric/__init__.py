"""The hardware: one `Site` and what it is made of."""

from rackyard.fabric.model import (
    Cpu,
    DomainKey,
    Gpu,
    Health,
    Leaf,
    Nic,
    Node,
    Provenance,
    Rack,
    Site,
    Spine,
    SwitchTray,
)
from rackyard.fabric.simulate import simulate
from rackyard.fabric.yamlio import dump, load

__all__ = [
    "Cpu",
    "DomainKey",
    "Gpu",
    "Health",
    "Leaf",
    "Nic",
    "Node",
    "Provenance",
    "Rack",
    "Site",
    "Spine",
    "SwitchTray",
    "dump",
    "load",
    "simulate",
]
