"""From a round of readings to what the agent says of its node: conditions, labels, findings and counts. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackyard.agent.checks import Seen
from rackyard.agent.conditions import CHECKS, Condition, condition, findings
from rackyard.agent.host import Host, Memory, host_of, remember
from rackyard.agent.reading import Reading
from rackyard.fabric.expect import audit
from rackyard.fabric.labelkeys import Fact, KeyTable, shipped
from rackyard.fabric.labels import labels_of
from rackyard.findings import Finding

PLACE = frozenset({Fact.DOMAIN, Fact.CLIQUE_ID, Fact.CHASSIS, Fact.SLOT, Fact.TRAY})
"""Where a node is: it does not change while nobody can say, so a reader that fails takes no such label away."""

STATE = frozenset({Fact.DEGRADED_LINKS, Fact.DEGRADED_GPUS})
"""How it is: said only while it is known. The name of the rack, the rails and the tiers take a look at many nodes:
they stay with `rackyard topo label`.
"""

GPUS = tuple(CHECKS).index("rackyard.io/GPUFault")


@dataclass(frozen=True, slots=True)
class View:
    """What the agent says of its node after one round. Counts are of GPUs and NICs by health, and of NVLinks by up and
    listed. `kept` are the keys of labels that stay as they are for want of knowledge.
    """

    node: str
    conditions: tuple[Condition, ...]
    labels: Mapping[str, str]
    kept: frozenset[str]
    findings: tuple[Finding, ...]
    readings: tuple[Reading, ...]
    gpus: Mapping[str, int]
    nics: Mapping[str, int]
    nvlinks: Mapping[str, int]


def derive(node: str, readings: Sequence[Reading], memory: Memory, now: float) -> tuple[View, Memory]:
    """The view after a round of readings, and what to remember of it. `now` in seconds on any one clock."""
    host = host_of(node, readings)
    after = remember(memory, host, now)
    seen = Seen(host, after, now)
    conditions, found = [], [*host.found.findings]
    for kind, check in CHECKS.items():
        signs = check(seen)
        conditions.append(condition(kind, signs))
        found += findings(node, kind, signs)
    if host.node is not None:
        found += audit(host.found)
    table = shipped()
    view = View(
        node=node,
        conditions=tuple(conditions),
        labels=_labels(host, table, whole=conditions[GPUS].status == "False"),
        kept=_keys(table, PLACE) if host.trouble("nvml") or not host.gpus else frozenset(),
        findings=tuple(found),
        readings=tuple(readings),
        gpus=Counter(gpu.health.value for gpu in host.node.gpus) if host.node else {},
        nics=Counter(nic.health.value for nic in host.node.nics) if host.node else {},
        nvlinks=_nvlinks(host),
    )
    return view, after


def own_keys(table: KeyTable | None = None) -> frozenset[str]:
    """The keys of all labels that the agent may write."""
    return _keys(table or shipped(), PLACE | STATE)


def wanted(view: View, current: Mapping[str, str]) -> dict[str, str]:
    """The labels that the node shall carry, given those that it carries now and that we set."""
    return {key: value for key, value in current.items() if key in view.kept} | dict(view.labels)


def _keys(table: KeyTable, facts: frozenset[Fact]) -> frozenset[str]:
    return frozenset(key.stem for key in table.written() if key.fact in facts)


def _labels(host: Host, table: KeyTable, *, whole: bool) -> dict[str, str]:
    """Without `whole` a GPU may be missing, and no count of what is bad can be zero."""
    if host.node is None:
        return {}
    keys = [key for key in table.written() if key.fact in PLACE | STATE]
    state = _keys(table, STATE)
    made = labels_of(host.found.site, keys)[host.name]
    return {key: value for key, value in made.items() if whole or key not in state or value != "0"}


def _nvlinks(host: Host) -> dict[str, int]:
    told = [gpu for gpu in host.gpus if gpu.links is not None]
    return {"up": sum(gpu.links or 0 for gpu in told), "listed": sum(gpu.links_seen or 0 for gpu in told)}
