"""A topograph model (NVIDIA/topograph, docs/modeling.md): the switch groups as a tree, and blocks of nodes below its
leaves.
"""

from collections.abc import Iterator

from rackyard.errors import UsageError
from rackyard.fabric.model import Site
from rackyard.fabric.readers.hostlist import tokens
from rackyard.fabric.tiers import LEAF, Group, largest
from rackyard.fabric.writers.names import Names, node_list, slurm
from rackyard.fabric.yamlread import scalar

DOMAIN_KEY = "accelerator.topology.test/domain"
_HEADER = """\
# Topograph model, written by rackyard. A switch without switches stands for a leaf group: the leaves that serve the
# same nodes.
"""


def write(site: Site) -> str:
    """The model as YAML. The accelerator domain is `<ClusterUUID>.<CliqueID>`. UsageError for a site without nodes,
    which is no model, and for node names that can't stand in a compact range.
    """
    top = largest(site)
    if top is None:
        raise UsageError("the site has no nodes", why="a topograph model has at least one block of nodes")
    names = Names(slurm)
    switches: list[str] = []
    blocks: list[str] = []
    rows = [(top, names.new(top.name))]
    if top.tier_name == LEAF:
        switches.append(f"  {scalar(rows[0][1])}: {{}}")  # others are made from the lists of those above them
    while rows:
        group, name = rows.pop()
        if group.tier_name == LEAF:
            blocks += _blocks(group, name, site)
            continue
        kids = [(child, names.new(child.name)) for child in group.children]
        switches += [f"  {scalar(name)}:", "    switches:", *(f"    - {scalar(kid)}" for _, kid in kids)]
        rows += reversed(kids)
    return _HEADER + "\n".join(["switches:", *switches, "blocks:", *blocks]) + "\n"


def _blocks(group: Group, switch: str, site: Site) -> Iterator[str]:
    """A block for each NVLink domain at this leaf, and one for the nodes that are a domain by themselves."""
    for part in group.children:
        yield from _block(switch, part.nodes(), str(site.node(part.nodes()[0]).domain))
    if group.loose:
        yield from _block(switch, group.loose, "")


def _block(switch: str, nodes: tuple[str, ...], domain: str) -> Iterator[str]:
    yield f"- switch: {scalar(switch)}"
    yield "  nodes:"
    for token in tokens(node_list(nodes)):
        yield f"  - {scalar(token)}"
    if domain:
        yield f"  annotations: {{{DOMAIN_KEY}: {scalar(domain)}}}"
