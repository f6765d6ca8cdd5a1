"""Random sites and gangs, small enough for an exact answer; a seed says everything about one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from rackyard.fabric import DomainKey, Health, Leaf, Node, Site, Spine, simulate
from rackyard.placement import Group, Occupancy, Parallel, Request

RAILS = 4
KINDS = (
    ("no plan", 4),
    ("segments", 4),
    ("preferred segments", 3),
    ("groups", 2),
    ("preferred groups", 2),
    ("plan", 4),
    ("plan and segments", 3),
    ("pins", 1),
    ("copies", 1),
    ("racks", 1),
)
"""What a gang asks for beside nodes, and how often of 26."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One question."""

    seed: int
    kind: str
    site: Site
    occupancy: Occupancy
    request: Request


def instance(seed: int) -> Instance:
    """The instance of a seed."""
    draw = Random(seed)
    (kind,) = draw.choices([name for name, _ in KINDS], [weight for _, weight in KINDS])
    site = _site(draw, few="plan" in kind)
    occupancy = _occupancy(draw, site)
    spares = draw.choice((0, 0, 0, 1))
    exclude = frozenset(draw.sample([node.name for node in site.nodes], 2)) if draw.random() < 0.1 else frozenset()
    base = Request(RAILS, spares=spares, exclude=exclude, exclusive=draw.random() < 0.05)
    free = _free(site, occupancy, base)
    request = _request(draw, kind, base, free)
    more = Random(f"{seed}, more")
    if more.random() < 0.1:
        kind, request = "mixed", _mixed(more, request, free)
    return Instance(seed, kind, _divided(site) if more.random() < 0.06 else site, occupancy, request)


def _site(draw: Random, few: bool) -> Site:
    racks = draw.randint(2, 8 if few else 12)
    site = simulate(racks, 18)
    sizes = [draw.choice((18, 18, 18, 16, draw.randint(4, 18))) for _ in range(racks)]
    if few:
        sizes = [min(size, draw.choice((6, 8, 10, 18))) for size in sizes]
    keep = {f"r{rack:02d}-t{slot:02d}" for rack, size in enumerate(sizes, 1) for slot in range(1, size + 1)}
    site = replace(site, nodes=tuple(node for node in site.nodes if node.name in keep))
    names = [node.name for node in site.nodes]
    site = site.with_cordon(dict.fromkeys(draw.sample(names, draw.choice((0, 0, 1, len(names) // 12))), "drawn"))
    site = site.with_health(
        nodes=dict.fromkeys(draw.sample(names, draw.choice((0, 0, 0, 2))), Health.DOWN),
        nvlink={
            rack.name: draw.choice((Health.DEGRADED, Health.UNKNOWN)) for rack in site.racks if draw.random() < 0.1
        },
    )
    if draw.random() < 0.5:
        site = _worn(site, set(draw.sample(names, len(names) // draw.choice((3, 8)))))
    return _cabled(draw, site)


def _worn(site: Site, names: set[str]) -> Site:
    """The same with one NVLink missing on some nodes: usable, but not if there are others."""

    def less(node: Node) -> Node:
        return replace(node, gpus=(replace(node.gpus[0], nvlinks=node.gpus[0].nvlinks - 1), *node.gpus[1:]))

    return replace(site, nodes=tuple(less(node) if node.name in names else node for node in site.nodes))


def _divided(site: Site) -> Site:
    """The same with two NVLink domains in every rack."""

    def half(node: Node) -> Node:
        return replace(node, domain=DomainKey(node.domain.cluster_uuid, 1 + (node.slot > 9)))

    return replace(site, nodes=tuple(half(node) for node in site.nodes))


def _cabled(draw: Random, site: Site) -> Site:
    """The same under leaf groups, blocks and parts of random sizes."""
    racks = [rack.name for rack in site.racks]
    leaf_of = _in_runs(draw, racks, (1, 1, 2, 3))
    leaves = list(dict.fromkeys(leaf_of.values()))
    block_of = _in_runs(draw, leaves, (1, 2, 3, 4, 12))
    blocks = list(dict.fromkeys(block_of.values()))
    part_of = _in_runs(draw, blocks, (1, 2, 12))
    first = {leaf_of[rack]: rack for rack in reversed(racks)}
    return replace(
        site,
        nodes=tuple(
            replace(node, nics=tuple(replace(nic, leaf=f"leaf-{leaf_of[node.rack]}-{nic.rail}") for nic in node.nics))
            for node in site.nodes
        ),
        leaves=tuple(
            Leaf(f"leaf-{leaf}-{rail}", rail, first[leaf], 8, (f"spine-{block_of[leaf]}",))
            for leaf in leaves
            for rail in range(RAILS)
        ),
        spines=(
            *(Spine(f"spine-{block}", above=(f"core-{part_of[block]}",)) for block in blocks),
            *(Spine(f"core-{part}") for part in dict.fromkeys(part_of.values())),
        ),
    )


def _in_runs(draw: Random, members: Sequence[str] | Sequence[int], sizes: Sequence[int]) -> dict[str | int, int]:
    """The number of the run that each member is in; runs of one drawn size, now and then of another."""
    usual = draw.choice(sizes)
    found: dict[str | int, int] = {}
    run, room = 0, usual
    for member in members:
        if not room:
            run, room = run + 1, draw.choice((usual, usual, draw.choice(sizes)))
        found[member] = run
        room -= 1
    return found


def _occupancy(draw: Random, site: Site) -> Occupancy:
    used: dict[str, frozenset[int]] = {}
    ceiling = draw.choice((0.0, 0.3, 0.6, 0.9))
    for rack in site.racks:
        nodes = site.nodes_in_rack(rack.name)
        load = draw.choice((0.0, draw.uniform(0, ceiling), ceiling))
        busy = round(load * len(nodes))
        for node in draw.sample(nodes, busy) if draw.random() < 0.3 else nodes[:busy]:
            used[node.name] = frozenset(range(len(node.gpus)) if draw.random() < 0.9 else {0})
    return Occupancy(used)


def _free(site: Site, occupancy: Occupancy, request: Request) -> dict[str, list[str]]:
    """About the nodes that may be had, by rack; the instances need not be exact, the oracle is."""
    found: dict[str, list[str]] = {}
    for node in site.nodes:
        if (
            node.health is Health.HEALTHY
            and not node.cordoned
            and not occupancy.busy(node.name)
            and node.name not in request.exclude
        ):
            found.setdefault(node.rack, []).append(node.name)
    return found


def _request(draw: Random, kind: str, base: Request, free: dict[str, list[str]]) -> Request:
    room = [max(0, len(nodes) - base.spares) for nodes in free.values()]
    if kind.startswith("plan"):
        return _planned(draw, kind, base, sum(room))
    segment = draw.choice((2, 3, 4, 4, 6, 8, 8, 9, 12, 16, 18)) if "segments" in kind or draw.random() < 0.2 else 1
    grouped = "groups" in kind
    if grouped:
        segment = draw.choice((1, 1, 2, 4))
    units = sum(count // segment for count in room) if kind != "preferred segments" else sum(room) // segment
    many = max(1, round(units * draw.choice((0.1, 0.3, 0.5, 0.7, 0.9, 1.0))))
    units = draw.randint(1, many) if draw.random() < 0.5 else many
    run = 1
    if grouped:
        run = draw.choice([run for run in (2, 3, 4, 5, 6, 8, 12) if run <= units] or [1])
        units = units // run * run
    if kind == "racks":
        segment = draw.choice((1, 1, 2, 4))
        units = draw.randint(1, max(1, sum(room) // segment // 2))
    request = replace(
        base,
        gpus=units * segment * RAILS,
        segment_gpus=segment * RAILS if segment > 1 or "segments" in kind else None,
        segment_required=kind != "preferred segments",
    )
    if grouped:
        request = replace(request, groups=_groups(draw, kind, units, segment, run))
    if kind == "pins":
        names = [name for nodes in free.values() for name in nodes]
        pins = min(len(names), units * segment, draw.randint(1, 3))
        request = replace(request, pin=frozenset(draw.sample(names, pins)))
    if kind == "copies":
        request = replace(request, copies=draw.choice((2, 2, 3)))
    if kind == "racks":
        request = replace(request, spread=draw.randint(1, max(1, min(len(room), units))))
    return request


def _mixed(draw: Random, request: Request, free: dict[str, list[str]]) -> Request:
    """One or two things more that the gang asks for."""
    nodes = request.gpus // RAILS
    split = request.segment_gpus is not None and not request.segment_required
    names = [name for members in free.values() for name in members]
    for _ in range(draw.randint(1, 2)):
        match draw.randrange(5):
            case 0 if not split:  # what even shares of segments are that may be split, nobody has defined
                request = replace(request, spread=draw.randint(1, 4))
            case 1:
                request = replace(request, copies=2)
            case 2:
                request = replace(request, pin=frozenset(draw.sample(names, min(len(names), nodes, 2))))
            case 3:
                scope = draw.choice(("leaf", "block", "part"))
                request = replace(request, groups=(Group(request.gpus, scope, draw.random() < 0.6),))
            case _:
                racks = draw.sample(list(free), len(free) // 4)
                request = replace(request, exclude_racks=frozenset(racks), exclusive=draw.random() < 0.5)
    return request


def _groups(draw: Random, kind: str, units: int, segment: int, run: int) -> tuple[Group, ...]:
    """One group, or two of which the outer one is a multiple of the inner."""
    required = kind == "groups"
    scopes = draw.choice((("block",), ("block",), ("leaf",), ("leaf", "block"), ("block", "part")))
    outer = draw.choice([times for times in (1, 2, 3, units // run) if (units // run) % times == 0])
    sizes = (run, run * outer)
    return tuple(
        Group(size * segment * RAILS, scope, required if at == 0 else required and draw.random() < 0.5)
        for at, (scope, size) in enumerate(zip(scopes, sizes, strict=False))
    )


def _planned(draw: Random, kind: str, base: Request, free: int) -> Request:
    """Ranks are GPUs: tp · cp · ep in nodes' worth, then data parallel, then stages."""
    tp = draw.choice((1, 2, 4, 4, 8, 8, 16))
    cp = draw.choice((1, 1, 1, 2))
    pp = draw.choice((1, 1, 2, 2, 3, 4))
    ep = draw.choice((1, 1, 2, 4))
    inner = tp * cp * ep
    step = max(inner * pp, RAILS * pp)
    most = min(free, 40) * RAILS // step
    count = draw.randint(1, max(1, most))
    gpus = count * step
    plan = Parallel(tp=tp, pp=pp, cp=cp, ep=ep, dp_weight=draw.choice((1, 1, 4)), pp_weight=draw.choice((1, 1, 2, 8)))
    request = replace(base, gpus=gpus, parallel=plan)
    if kind == "plan and segments":
        nodes = gpus // RAILS
        sizes = [size for size in (2, 4, 6, 8, 12, 16) if nodes % size == 0 and size <= nodes]
        if sizes:
            size = draw.choice(sizes)
            return replace(request, segment_gpus=size * RAILS, segment_required=draw.random() < 0.6)
    return request
