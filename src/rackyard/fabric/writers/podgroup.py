"""kube-scheduler: a PodGroup whose pods all land in one NVLink domain, beside the node labels that make it so.

Kubernetes 1.36 serves it as scheduling.k8s.io/v1alpha2 (kubernetes/api, scheduling/v1alpha2/types.go, v0.36.3): one
topology constraint at most, a node label's key, required; there is none that is preferred, and no second level.
"""

from collections import Counter
from collections.abc import Iterator

from rackyard.errors import UsageError
from rackyard.fabric.labelkeys import OWN, Fact, KeyTable, shipped
from rackyard.fabric.labels import labels_of
from rackyard.fabric.model import Site
from rackyard.fabric.writers.names import kubernetes, kubernetes_node

API_VERSION = "scheduling.k8s.io/v1alpha2"
GATES = ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling")
"""Feature gates of kube-apiserver and kube-scheduler, all of them off by default in 1.36."""

_HEADER = f"""\
# A gang for kube-scheduler, written by rackyard: as an example, as many pods as the smallest NVLink domain has nodes.
# Its pods say so in their spec, and all land on nodes with one value of the label below, or none does:
#   schedulingGroup: {{{{podGroupName: {{name}}}}}}
# Kubernetes 1.36 needs --runtime-config={API_VERSION}=true and the feature gates
#   {", ".join(GATES)}
# The node labels come from `rackyard topo label`; a node without one is not seen by such a gang:
"""


def write(site: Site, table: KeyTable | None = None) -> str:
    """A PodGroup as one YAML document; the key is that of `table`, else the shipped one. UsageError for a site without
    nodes, for a table that writes no NVLink domain, and for names that no Kubernetes node can have.
    """
    if not site.nodes:
        raise UsageError("the site has no nodes", why="the constraint is over the labels of its nodes")
    table = shipped() if table is None else table
    key, domains = domain_label(site, table)
    name = kubernetes(f"{site.name}-one-domain")
    smallest = min((count for count in domains.values() if count > 1), default=1)  # else servers alone in theirs
    lines = [_HEADER.format(name=name).rstrip("\n"), *_listed(key, domains)]
    lines += [
        f"apiVersion: {API_VERSION}",
        "kind: PodGroup",
        f'metadata: {{name: "{name}"}}',
        "spec:",
        f"  schedulingPolicy: {{gang: {{minCount: {smallest}}}}}",
        f"  schedulingConstraints: {{topology: [{{key: {key}}}]}}",
    ]
    return "\n".join(lines) + "\n"


def domain_label(site: Site, table: KeyTable) -> tuple[str, Counter[str]]:
    """The key of our own label of the NVLink domain, and how many nodes of the site get which value."""
    for node in site.nodes:
        kubernetes_node(node.name)
    rows = [row for row in table.keys if row.group == OWN and row.fact is Fact.DOMAIN]
    found = [pair for labels in labels_of(site, rows).values() for pair in labels.items()]
    if not found:
        raise UsageError("no node of the site gets a label of its NVLink domain", fix="rackyard topo label --list-keys")
    key = found[0][0]
    return key, Counter(value for own, value in found if own == key)


def _listed(key: str, domains: Counter[str]) -> Iterator[str]:
    for value, count in sorted(domains.items()):
        yield f"#   {key}={value} ({count} node{'s' if count != 1 else ''})"
