"""Slurm's topology/tree: `SwitchName=… Switches=…` and `SwitchName=… Nodes=…` (topology.conf(5))."""

from collections.abc import Iterator
from dataclasses import dataclass

from rackyard.errors import UsageError
from rackyard.fabric.model import Site
from rackyard.fabric.tiers import LEAF, Group, largest
from rackyard.fabric.writers.names import Names, hostlist, node_list, slurm

_HEADER = """\
# Slurm topology/tree, written by rackyard: TopologyPlugin=topology/tree
#
# Slurm hangs a node on one leaf switch. On a rail-optimised network a node ends on one leaf for each rail, so a
# SwitchName with Nodes stands for a leaf group: all leaves that serve the same nodes (of NVL72 racks: one rack), or
# for an NVLink domain where a leaf group holds several. Rails are not in this file. Where a name had to be changed,
# `# written=real` is above it.
"""


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch of the tree, with the names of its children or those of its nodes. `real` is its name on the site."""

    name: str
    real: str
    children: tuple[str, ...]
    nodes: tuple[str, ...]


def write(site: Site) -> str:
    """topology.conf of the site. Every node is in it once. UsageError for a site without nodes and for node names
    that Slurm can't read.
    """
    lines: list[str] = []
    for switch in switches(site):
        lines += renamed(switch.name, switch.real)
        below = f"Switches={hostlist(switch.children)}" if switch.children else f"Nodes={node_list(switch.nodes)}"
        lines.append(f"SwitchName={switch.name} {below}")
    return _HEADER + "\n".join(lines) + "\n"


def switches(site: Site) -> tuple[Switch, ...]:
    """The switches of the tree, each before those below it. A group that holds just one other is left out."""
    top = largest(site)
    if top is None:
        raise UsageError("the site has no nodes", fix="an empty topology.conf stops slurmctld")
    names = Names(slurm)
    found = []
    top = _lone(top)
    rows = [(top, names.new(top.name))]
    while rows:
        group, name = rows.pop()
        kids = [(child, names.new(child.name)) for child in map(_lone, _below(group))]
        found.append(Switch(name, group.name, tuple(kid for _, kid in kids), () if kids else group.nodes()))
        rows += reversed(kids)
    return tuple(found)


def renamed(name: str, real: str) -> Iterator[str]:
    """The comment with the real name, as topograph writes it too, where the name had to be changed and can be told."""
    if name != real and name == slurm(real) and real.isprintable() and real == real.strip():
        yield f"# {name}={real}"


def _lone(group: Group) -> Group:
    """The group itself, or where it holds just one other, that one, down to the leaf group."""
    while group.tier_name != LEAF and len(group.children) == 1 and not group.loose:
        group = group.children[0]
    return group


def _below(group: Group) -> tuple[Group, ...]:
    """The groups that become child switches. Loose nodes beside child groups need a switch of their own."""
    if not group.loose:
        return group.children if len(group.children) > 1 else ()
    rest = Group(f"{group.name}.nodes", group.tier, group.tier_name, (), group.loose)
    return (*group.children, rest) if group.children else ()
