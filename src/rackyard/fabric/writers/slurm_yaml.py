"""Slurm's topology.yaml: the tree for all partitions, and the blocks for those that ask for them (topology.yaml(5))."""

from rackyard.fabric.model import Site
from rackyard.fabric.writers.names import hostlist, node_list
from rackyard.fabric.writers.slurm_block import block_sizes, blocks
from rackyard.fabric.writers.slurm_tree import switches
from rackyard.fabric.yamlread import flow

_HEADER = """\
# Slurm topologies, written by rackyard. `tree` holds for every partition that names no other; a partition with
# Topology=block gets NVLink domains as blocks. Each is explained in the topology.conf that `rackyard topo export --to
# slurm-tree` and `--to slurm-block` write. Slurm reads this file instead of topology.conf from 25.05 on.
---
"""


def write(site: Site, base: int | None = None) -> str:
    """topology.yaml of the site; `base` as in `slurm_block.write`. UsageError as there."""
    lines = ["- topology: tree", "  cluster_default: true", "  tree:", "    switches:"]
    for switch in switches(site):
        children = {"children": quoted(hostlist(switch.children))} if switch.children else {}
        nodes = {"nodes": quoted(node_list(switch.nodes))} if switch.nodes else {}
        lines.append(f"      - {flow({'switch': quoted(switch.name)} | children | nodes)}")
    found = blocks(site)
    sizes = ", ".join(map(str, block_sizes(found, base)))
    lines += ["- topology: block", "  cluster_default: false", "  block:", f"    block_sizes: [{sizes}]", "    blocks:"]
    for block in found:
        lines.append(f"      - {flow({'block': quoted(block.name), 'nodes': quoted(node_list(block.nodes))})}")
    return _HEADER + "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """A text in double quotes; what Slurm takes has nothing to escape."""
    return f'"{text}"'
