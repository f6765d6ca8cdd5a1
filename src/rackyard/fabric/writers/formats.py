"""The formats that a site is exported to, by the names of `topo export --to`."""

from collections.abc import Callable
from dataclasses import dataclass

from rackyard.fabric.model import Site
from rackyard.fabric.writers import (
    dot,
    kueue,
    podgroup,
    site_json,
    slurm_block,
    slurm_tree,
    slurm_yaml,
    topograph,
    volcano,
)


@dataclass(frozen=True, slots=True)
class Format:
    """One format: `lost` is what a reader of the file can't know any more."""

    name: str
    write: Callable[[Site], str]
    what: str
    lost: str


FORMATS: tuple[Format, ...] = (
    Format(
        "volcano", volcano.write, "HyperNodes by tier", "racks, rails, switches, health, cordons, everything in a node"
    ),
    Format("kueue", kueue.write, "Topology over node labels", "the groups themselves: they are in the labels"),
    Format(
        "podgroup",
        podgroup.write,
        "PodGroup of kube-scheduler, an example",
        "all tiers but the NVLink domain; the groups themselves: they are in the labels",
    ),
    Format(
        "slurm-tree",
        slurm_tree.write,
        "topology.conf, topology/tree",
        "NVLink domains, rails, health, everything in a node",
    ),
    Format(
        "slurm-block",
        slurm_block.write,
        "topology.conf, topology/block",
        "switches, domain keys, health, everything in a node",
    ),
    Format(
        "slurm-yaml", slurm_yaml.write, "topology.yaml with both", "rails, domain keys, health, everything in a node"
    ),
    Format("topograph", topograph.write, "topograph model", "racks, rails, health, everything in a node"),
    Format("dot", dot.write, "Graphviz graph", "it is a picture; nothing reads it back"),
    Format("json", site_json.write, "the whole site", "nothing"),
)


def formats() -> dict[str, Format]:
    """The formats by name."""
    return {each.name: each for each in FORMATS}
