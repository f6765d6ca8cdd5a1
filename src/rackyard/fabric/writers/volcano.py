"""Volcano HyperNodes (topology.volcano.sh/v1alpha1): one object for each group of each tier.

Fields and limits are those of the CRD (volcano-sh/apis, pkg/apis/topology/v1alpha1/hypernode_types.go) and of the
admission webhook. A job asks for `highestTierAllowed: 1`, or by `highestTierName: nvlink-domain`, to stay inside one
NVLink domain.
"""

from collections.abc import Iterator

from rackyard.errors import UsageError
from rackyard.fabric.model import Site
from rackyard.fabric.tiers import Group, tiers
from rackyard.fabric.writers.names import Names, kubernetes, kubernetes_node
from rackyard.fabric.writers.patterns import pattern_of

_HEADER = """\
# Volcano HyperNodes, written by rackyard. Tier 1 is the nearest; tierName says what a tier is. Nodes that are an
# NVLink domain by themselves first appear at their leaf group. kubectl apply -f takes the file as it is.
"""


def write(site: Site, *, compact: bool = False) -> str:
    """The HyperNodes as YAML documents, lowest tier first. Members are named one by one, or, `compact`, by a pattern
    where one matches the members and nothing else. UsageError for a site without nodes, and for names that no
    Kubernetes node can have.
    """
    found = tiers(site)
    if not found:
        raise UsageError("the site has no nodes", why="a HyperNode has at least one member")
    names = Names(kubernetes)
    lines = [_HEADER.rstrip("\n")]
    named: dict[int, str] = {}
    for groups in found:
        for group in groups:
            named[id(group)] = names.new(group.name, f"{group.name}-{group.tier_name}")
            lines += _object(group, named, compact)
    return "\n".join(lines) + "\n"


def _object(group: Group, named: dict[int, str], compact: bool) -> Iterator[str]:
    yield "---"
    yield "apiVersion: topology.volcano.sh/v1alpha1"
    yield "kind: HyperNode"
    yield "metadata:"
    yield f'  name: "{named[id(group)]}"'
    yield "  labels: {app.kubernetes.io/managed-by: rackyard}"
    yield "spec:"
    yield f"  tier: {group.tier}"
    yield f'  tierName: "{group.tier_name}"'
    yield "  members:"
    for child in group.children:
        yield f'  - {{type: HyperNode, selector: {{exactMatch: {{name: "{named[id(child)]}"}}}}}}'
    loose = [kubernetes_node(node) for node in group.loose]
    pattern = pattern_of(loose) if compact and len(loose) > 1 else None
    if pattern is not None:
        escaped = pattern.replace("\\", "\\\\")
        yield f'  - {{type: Node, selector: {{regexMatch: {{pattern: "{escaped}"}}}}}}'
        return
    for node in loose:
        yield f'  - {{type: Node, selector: {{exactMatch: {{name: "{node}"}}}}}}'
