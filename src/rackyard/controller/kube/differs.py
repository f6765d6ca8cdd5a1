"""Where the site and the cluster are not the same: most often the site file is another cluster's, or none was given."""

from collections.abc import Mapping, Sequence

from rackyard.controller.kube.objects import Node
from rackyard.fabric import Site

_SHOWN = 3


def differs(site: Site, nodes: Mapping[str, Node]) -> str:
    """One line for people; empty where each has what the other has. Nodes without GPUs need be in no site. Pure."""
    strange = sorted(name for name in nodes if not site.has_node(name))
    idle = [name for name in strange if nodes[name].gpus]
    if not site.nodes:
        seen = f"{_counted(len(strange))} of the cluster not in it"
        seen += f", {len(idle)} with GPUs: {_some(idle)}" if idle else ""
        do = "give a site with --site (`rackyard topo discover` makes one; installed by deploy/, it is site.yaml there)"
        return f"site {site.name} is empty, and nothing will be placed; {seen}; {do}"
    gone = [node.name for node in site.nodes if node.name not in nodes]
    parts = []
    if gone:
        parts.append(f"{len(gone)} of its {len(site.nodes)} nodes are not in the cluster: {_some(gone)}")
    if idle:
        parts.append(f"not in it: {_counted(len(idle))} of the cluster with GPUs, which get no gang: {_some(idle)}")
    return f"site {site.name}: {'; '.join(parts)}" if parts else ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")


def _counted(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"
