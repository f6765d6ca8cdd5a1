"""Kueue: a Topology (kueue.x-k8s.io/v1beta2) over our node labels, and a ResourceFlavor that refers to it.

Limits are those of the CRD (kubernetes-sigs/kueue, apis/kueue/v1beta2/topology_types.go): 1 to 16 levels, each key
once, kubernetes.io/hostname only as the last. Kueue leaves out nodes that lack the label of a level, so a key is a
level only if every node of the site gets it.
"""

from collections.abc import Mapping, Sequence

from rackyard.errors import UsageError
from rackyard.fabric.labelkeys import OWN, Fact, KeyTable, shipped
from rackyard.fabric.labels import labels_of
from rackyard.fabric.model import Site
from rackyard.fabric.writers.names import kubernetes, kubernetes_node

HOSTNAME = "kubernetes.io/hostname"
MAX_LEVELS = 16

_HEADER = """\
# Kueue topology-aware scheduling, written by rackyard: highest tier first, hostname last. The node labels come from
# `rackyard topo label`; a node without one of them is not seen by Kueue.
"""
_FLAVOR = """\
---
# An example: name the flavor in a ClusterQueue. A ResourceFlavor with a topology needs at least one node label.
"""


def write(site: Site, table: KeyTable | None = None) -> str:
    """Topology and ResourceFlavor as two YAML documents; the keys are those of `table`, else the shipped ones.
    UsageError for a site without nodes, and for names that no Kubernetes node can have.
    """
    if not site.nodes:
        raise UsageError("the site has no nodes", why="levels are the labels of its nodes")
    table = shipped() if table is None else table
    name = kubernetes(site.name)
    lines = [
        _HEADER + "apiVersion: kueue.x-k8s.io/v1beta2",
        "kind: Topology",
        f'metadata: {{name: "{name}"}}',
        "spec:",
        "  levels:",
    ]
    lines += [f"  - nodeLabel: {key}" for key in levels(site, table)]
    lines += [
        _FLAVOR + "apiVersion: kueue.x-k8s.io/v1beta2",
        "kind: ResourceFlavor",
        f'metadata: {{name: "{name}"}}',
        "spec:",
    ]
    lines += ['  nodeLabels: {nvidia.com/gpu.present: "true"}  # of GPU feature discovery', f'  topologyName: "{name}"']
    return "\n".join(lines) + "\n"


def levels(site: Site, table: KeyTable) -> tuple[str, ...]:
    """The keys of the levels, highest tier first: switch tiers, the NVLink domain, the hostname.

    Each level divides the one above it. A key whose groups reach over two groups of the level above is left out, and
    so is one that says the same as the level above.
    """
    for node in site.nodes:
        kubernetes_node(node.name)
    rows = [row for row in table.keys if row.group == OWN and row.fact in (Fact.TIER, Fact.DOMAIN)]
    labels = list(labels_of(site, rows).values())
    everywhere = [
        key for key in dict.fromkeys(key for own in labels for key in own) if all(key in own for own in labels)
    ]
    tiers: dict[int, str] = {}
    domain = ""
    for key in everywhere:
        found = table.meaning(key)
        if found is not None and found[0].fact is Fact.TIER and found[1] is not None:
            tiers[found[1]] = key
        elif found is not None and found[0].fact is Fact.DOMAIN:
            domain = key
    ordered = [tiers[number] for number in sorted(tiers, reverse=True)] + ([domain] if domain else [])
    kept: list[str] = []
    for key in ordered:
        if not kept or _divides(labels, kept[-1], key):
            kept.append(key)
    return (*kept[-(MAX_LEVELS - 1) :], HOSTNAME)


def _divides(labels: Sequence[Mapping[str, str]], above: str, below: str) -> bool:
    parent: dict[str, str] = {}
    for own in labels:
        if parent.setdefault(own[below], own[above]) != own[above]:
            return False
    return len(parent) > len(set(parent.values()))
