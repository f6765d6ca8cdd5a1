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
from rackyard.fabric.tiers import BLOCK, DOMAIN, LEAF, PART, SITE, Group, largest, tiers
from rackyard.fabric.yamlio import dump, load

__all__ = [
    "BLOCK",
    "DOMAIN",
    "LEAF",
    "PART",
    "SITE",
    "Cpu",
    "DomainKey",
    "Gpu",
    "Group",
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
    "largest",
    "load",
    "simulate",
    "tiers",
]
