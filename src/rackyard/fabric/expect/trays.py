"""Where nodes stand: missing trays, two trays in one place, one name in two places."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from rackyard.fabric.expect.context import Context, NodeView
from rackyard.fabric.expect.domains import strays
from rackyard.fabric.expect.rules import Rule
from rackyard.fabric.expect.words import listed
from rackyard.fabric.facts import GpuFact, HostFact, Source
from rackyard.findings import Finding, Severity


def _missing(rule: Rule, ctx: Context) -> list[Finding]:
    """Compute tray numbers that a rack lacks and most racks have. Numbers come from the hosts, never from names."""
    racks: dict[str, dict[int, NodeView]] = defaultdict(dict)
    astray = strays(ctx)  # `fabric/rack-domain` tells them; here they stand where their domain does
    for node in ctx.nodes.values():
        if node.rack and node.tray is not None:
            racks[astray.get(node.name, node.rack)][node.tray] = node
    if len(racks) < 2:
        if not racks:
            return [
                rule.unknown(
                    "site", "no capture tells compute tray numbers", "capture `nvidia-smi -q` (platform information)"
                )
            ]
        summary = "one rack only: nothing to compare its trays with"
        return [rule.unknown(f"rack {min(racks)}", summary, "give a design file, or captures of other racks")]
    times = Counter(tray for trays in racks.values() for tray in trays)
    usual = {tray for tray, count in times.items() if 2 * count > len(racks)}
    planned = {rack.name for rack in ctx.design.racks} if ctx.design else set()
    findings = []
    for rack, trays in sorted(racks.items()):
        lack = sorted(usual - trays.keys())
        if lack and rack not in planned:
            having = min(times[tray] for tray in lack)
            findings.append(
                rule.fail(
                    f"rack {rack}, tray {_numbers(lack)}",
                    f"{len(trays)} compute trays were seen; tray {_numbers(lack)} is in {having} of {len(racks)} racks",
                    [_source(node, "tray") for _, node in sorted(trays.items())[:2]],
                    "look whether the tray is powered and was captured; if there is none, say so in a design file",
                )
            )
    return rule.close(
        findings, f"{sum(map(len, racks.values()))} compute trays in {len(racks)} racks: none is missing in one"
    )


def _numbers(trays: Sequence[int]) -> str:
    return ", ".join(map(str, trays))


def _source(node: NodeView, name: str) -> Source | None:
    """The line that told `slot` or `tray` of a node, by the host first, as where it stands is taken from."""
    facts: list[HostFact | GpuFact] = [*node.hosts, *(fact for gpu in node.gpus for fact in gpu.facts)]
    value = getattr(node, name)
    return next((fact.source for fact in facts if value is not None and getattr(fact, name) == value), None)


def _places(rule: Rule, ctx: Context) -> list[Finding]:
    """Two nodes in one place of a chassis, and one node in two places."""
    seats: dict[tuple[str, str, int, int | None], list[NodeView]] = defaultdict(list)
    placed = 0
    for node in ctx.nodes.values():
        where = node.chassis or node.rack
        if not where or (node.slot is None and node.tray is None):
            continue
        placed += 1
        host_id = next((host.host_id for host in node.hosts if host.host_id is not None), None)
        for name, number in (("slot", node.slot), ("tray", node.tray)):
            if number is not None:
                seats[where, name, number, host_id].append(node)
    findings = list(_shared(rule, ctx, seats))
    findings += [finding for node in ctx.nodes.values() for finding in _two_places(rule, ctx, node)]
    if not placed and not findings:
        return [
            rule.unknown("site", "no capture tells chassis and slot", "capture `nvidia-smi -q` (platform information)")
        ]
    return rule.close(findings, f"{placed} nodes, each alone in its slot and in one place only")


def _shared(
    rule: Rule, ctx: Context, seats: dict[tuple[str, str, int, int | None], list[NodeView]]
) -> Iterator[Finding]:
    told: set[tuple[str, ...]] = set()
    for (where, name, number, _), nodes in sorted(seats.items(), key=lambda seat: (seat[0][0], seat[0][1], seat[0][2])):
        names = tuple(sorted(node.name for node in nodes))
        if len(names) < 2 or names in told or _one_machine(nodes):
            continue
        told.add(names)
        yield rule.fail(
            f"chassis {where}, {name} {number}",
            f"{len(names)} nodes say that they are in this place: {listed(names)}",
            [_source(node, name) for node in nodes],
            "one was moved without its record, or carries another tray's platform data: compare serial numbers",
        )


def _one_machine(nodes: Sequence[NodeView]) -> bool:
    """Whether these are one machine under several names: they share a GPU. `fabric/guids` tells that."""
    uuids = [{gpu.fact.uuid for gpu in node.gpus if gpu.fact.uuid} for node in nodes]
    return bool(set.intersection(*uuids))


def _two_places(rule: Rule, ctx: Context, node: NodeView) -> Iterator[Finding]:
    """What one reader says twice and differently; readers that differ are a contradiction, which merging reports."""
    seats = {(host.chassis, host.slot, host.tray) for host in node.hosts}
    seats |= {(fact.chassis, fact.slot, fact.tray) for gpu in node.gpus for fact in gpu.facts}
    if len(seats - {(None, None, None)}) < 2 and len({host.rack for host in node.hosts}) < 2:
        return
    for name in ("rack", "chassis", "slot", "tray"):
        told: dict[tuple[str, object], Source] = {}
        facts: list[HostFact | GpuFact] = [*node.hosts]
        if name != "rack":
            facts += (fact for gpu in node.gpus for fact in gpu.facts)
        for fact in facts:
            if (value := getattr(fact, name)) is not None:
                told.setdefault((fact.source.reader, value), fact.source)
        readers = Counter(reader for reader, _ in told)
        said = [key for key in sorted(told, key=str) if readers[key[0]] > 1]
        if said:
            yield rule.fail(
                f"node {node.name}",
                f"is said to be in {len(said)} places: {name} " + " and ".join(str(value) for _, value in said),
                [told[key] for key in said],
                "two machines share the name, or a record is old: rename one, or correct the record",
            )
            return


RULES = (
    Rule("fabric/trays", Severity.WARNING, "every rack has the compute trays that its peers have", _missing),
    Rule("fabric/places", Severity.ERROR, "every node is alone in its slot and in one place only", _places),
)
