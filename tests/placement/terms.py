"""The constraints' facts and the objective once more, from the definitions and not from the engine.

Everything here is counted from Site and Occupancy in plain Python, for gangs on whole nodes of one class. Nothing of
the engine's columns, census or cost is used, so that a slip there is not repeated here.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackyard.fabric import DomainKey, Health, Node, Site, largest
from rackyard.placement import Occupancy, Request

SCOPE = {"leaf-group": "leaf", "spine-group": "block", "core-group": "part"}
SIXTEEN = 16

Kind = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Domain:
    """One NVLink domain as one gang sees it, or the servers of one rack that are a domain each: what may be used of
    it, and where it stands.
    """

    key: DomainKey
    """Of its first node."""
    usable: tuple[str, ...]
    """Names of the nodes that the gang may use, spares among them."""
    clean: int
    """How many of these have nothing degraded."""
    whole: bool
    """It is shared by several nodes, and nobody uses any part of it."""
    weak: bool
    loose: bool
    """Each of its nodes is a domain by itself."""
    rack: str
    scopes: dict[str, int]
    """The number of its leaf group, block and part."""
    pinned: int


def kind_of(node: Node) -> Kind:
    """What nodes of one gang have in common."""
    return node.kind, node.gpus[0].kind, len(node.gpus)


def domains(request: Request, site: Site, occupancy: Occupancy, kind: Kind | None = None) -> list[Domain]:
    """The domains that hold any node that the gang may use, in site order; of nodes of one kind where that is given."""
    like = [node for node in site.nodes if node.gpus and kind in (None, kind_of(node))]
    members: dict[DomainKey, list[Node]] = {}
    for node in like:
        members.setdefault(node.domain, []).append(node)
    pools: dict[object, list[Node]] = {}
    for key, nodes in members.items():
        alone = (nodes[0].rack, *sorted(_states(nodes, site))) if len(nodes) == 1 else key
        pools.setdefault(alone, []).extend(nodes)
    scopes = scopes_of(site)
    found = []
    for nodes in pools.values():
        usable = [node for node in nodes if may_use(node, request, like, occupancy)]
        states = _states(nodes, site)
        busy = any(occupancy.busy(node.name) for node in nodes)
        size = sum(len(node.gpus) for node in members[nodes[0].domain])
        if not usable or Health.DOWN in states or (request.exclusive and busy) or size < request.domain_gpus:
            continue
        loose = len(members[nodes[0].domain]) == 1
        found.append(
            Domain(
                key=nodes[0].domain,
                usable=tuple(node.name for node in usable),
                clean=sum(not worn(node, like) for node in usable),
                whole=not busy and not loose,
                weak=states != {Health.HEALTHY},
                loose=loose,
                rack=nodes[0].rack,
                scopes={scope: numbers.get(nodes[0].name, 0) for scope, numbers in scopes.items()},
                pinned=sum(node.name in request.pin for node in nodes),
            )
        )
    return found


def _states(nodes: Sequence[Node], site: Site) -> set[Health]:
    """The NVLink health of every rack that a domain has to do with."""
    racks = {node.rack for node in nodes} | {rack.name for rack in site.racks if rack.domain == nodes[0].domain}
    return {site.rack(name).nvlink for name in racks}


def may_use(node: Node, request: Request, like: Sequence[Node], occupancy: Occupancy) -> bool:
    """Whether a gang may sit on all of a node, whatever its domain; `like` are all nodes of its kind."""
    up = [nic for nic in node.nics if nic.health is Health.HEALTHY]
    rails = {nic.rail for other in like for nic in other.nics}
    return (
        node.health is Health.HEALTHY
        and not node.cordoned
        and not occupancy.busy(node.name)
        and all(gpu.health is Health.HEALTHY and gpu.nvlinks != 0 for gpu in node.gpus)
        and (rails == {nic.rail for nic in up} if request.rails == "aligned" else bool(up))
        and (request.rail is None or request.rail in {nic.rail for nic in up})
        and min((nic.gbps for nic in up), default=0) >= request.nic_gbps
        and node.name not in request.exclude
        and node.rack not in request.exclude_racks
    )


def worn(node: Node, like: Sequence[Node]) -> bool:
    """Whether a link or NIC of the node is less than what its kind has."""
    links = max(gpu.nvlinks for other in like for gpu in other.gpus)
    rate = max((nic.gbps for other in like for nic in other.nics), default=0)
    return any(gpu.nvlinks < links for gpu in node.gpus) or any(
        nic.health is not Health.HEALTHY or nic.gbps < rate for nic in node.nics
    )


def scopes_of(site: Site) -> dict[str, dict[str, int]]:
    """By leaf, block and part: the number of the group that each node is in; empty where the tier is not there."""
    found: dict[str, dict[str, int]] = {scope: {} for scope in SCOPE.values()}
    top = largest(site)
    waiting = [top] if top is not None else []
    while waiting:
        group = waiting.pop()
        waiting += group.children
        if group.tier_name in SCOPE:
            numbers = found[SCOPE[group.tier_name]]
            numbers.update(dict.fromkeys(group.nodes(), len(set(numbers.values()))))
    return found


@dataclass(frozen=True, slots=True)
class Runs:
    """Groups of the gang (positions of its nodes) under each of which one more domain costs `weight`."""

    weight: int
    step: int
    """1 for neighbours; for pipelines, the nodes of a stage."""
    groups: tuple[tuple[int, ...], ...]


def consecutive(nodes: int, length: int) -> tuple[tuple[int, ...], ...]:
    """The gang cut into groups of so many neighbours; none where it is no whole number of them."""
    if nodes % length:
        return ()
    return tuple(tuple(range(first, first + length)) for first in range(0, nodes, length))


def parallel_groups(request: Request, per_node: int) -> list[Runs]:
    """The groups of the plan that are more than one node, ranks counted tp, cp, dp, pp; the gang itself without one."""
    nodes = request.gpus // per_node
    plan = request.parallel
    if plan is None or request.gpus % (plan.tp * plan.cp * plan.pp):
        return [Runs(1, 1, consecutive(nodes, nodes))]
    model = plan.tp * plan.cp
    stage = request.gpus // plan.pp
    found = []
    for ranks, weight in ((model, plan.tp_weight), (model * plan.ep, plan.ep_weight), (stage, plan.dp_weight)):
        if ranks > per_node and ranks % per_node == 0:
            found.append(Runs(weight, 1, consecutive(nodes, ranks // per_node)))
    if plan.pp > 1 and stage % per_node == 0:
        step = stage // per_node
        found.append(Runs(plan.pp_weight, step, tuple(tuple(range(at, nodes, step)) for at in range(step))))
    return found


def beyond_first(where: Sequence[object], groups: Iterable[Sequence[int]]) -> int:
    """Different values of `where` under each group beyond its first, summed."""
    return sum(len({where[position] for position in group}) - 1 for group in groups)


def segment_nodes(request: Request, per_node: int) -> int:
    """Nodes of a segment as asked for; 0 for none."""
    if request.segment_gpus is None:
        return 0
    return max(1, min(request.segment_gpus, request.gpus) // per_node)


def scope_lengths(request: Request, per_node: int) -> list[tuple[str, int, bool]]:
    """Scope, nodes and whether required, of each group asked for."""
    return [(group.within, min(group.gpus, request.gpus) // per_node, group.required) for group in request.groups]


def cost(where: Sequence[int], request: Request, found: Sequence[Domain], per_node: int) -> tuple[int, ...]:
    """The terms of a gang whose nodes, in rank order, sit in these domains (positions in `found`)."""
    counts = Counter(where)
    nodes = len(where)
    segment = segment_nodes(request, per_node)
    left = {at: len(found[at].usable) - count for at, count in counts.items()}
    under = [(at, number if found[at].loose else -1) for number, at in enumerate(where)]
    groups = sum(
        beyond_first([found[at].scopes[scope] for at in where], consecutive(nodes, length))
        for scope, length, _ in scope_lengths(request, per_node)
    )
    return (
        beyond_first(under, consecutive(nodes, segment)) if segment else 0,
        sum(found[at].weak for at, _ in set(under)),
        groups,
        len({found[at].scopes["block"] for at in counts}),
        sum(runs.weight * beyond_first(under, runs.groups) for runs in parallel_groups(request, per_node)),
        len(set(under)),
        sum(found[at].whole for at in counts),
        sum(len(found[at].usable) >= SIXTEEN > left[at] for at in counts),
        sum(left.values()),
        sum(rest > 0 for rest in left.values()),
        sum(max(0, count - found[at].clean) for at, count in counts.items()),
    )
