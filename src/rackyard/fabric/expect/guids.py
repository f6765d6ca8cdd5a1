"""What must be unique and is not: GUIDs of HCAs and switches, UUIDs of GPUs, names of switches."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rackyard.fabric.expect.context import Context
from rackyard.fabric.expect.parts import GpuView, NicView
from rackyard.fabric.expect.rules import Rule
from rackyard.fabric.expect.words import listed
from rackyard.fabric.facts import Source, SwitchFact
from rackyard.findings import Finding, Severity

_REFLASH = (
    "GUIDs are burnt in: give the board its own back (`flint sg`), or correct the capture that carries another's name"
)


@dataclass(frozen=True, slots=True, order=True)
class _Owner:
    """What carries a number. Two owners on one node are one when they are in one `place`."""

    node: str
    place: str


Carried = dict[_Owner, Source]
_Part = GpuView | NicView | SwitchFact


@dataclass(frozen=True, slots=True)
class Numbers:
    """How many numbers were looked at, and who carries those that are used twice, by what they are (`HCA GUID`)."""

    count: int
    twice: dict[tuple[str, str], Carried]


def _check(rule: Rule, ctx: Context) -> list[Finding]:
    numbers = _shared(ctx)
    if not numbers.count:
        return [rule.unknown("site", "no capture tells GUIDs or UUIDs", "run `rackyard topo collect` on the nodes")]
    groups: dict[frozenset[str], list[tuple[str, str, Carried]]] = defaultdict(list)
    for (what, number), carried in sorted(numbers.twice.items(), key=lambda item: item[0]):
        named = {owner: source for owner, source in carried.items() if not _is_anonymous(owner, source)}
        if len(named) > 1 or not named:
            own = named or carried
            groups[frozenset(owner.node for owner in own)].append((what, number, dict(sorted(own.items()))))
    findings: list[Finding] = []
    for nodes, shared in sorted(groups.items(), key=lambda group: sorted(group[0])):
        findings += [_machine(rule, nodes, shared)] if _is_whole(ctx, nodes, len(shared)) else _parts(rule, shared)
    return rule.close(findings, f"{numbers.count} GPU UUIDs and HCA and switch GUIDs looked at, each is used once")


def _shared(ctx: Context) -> Numbers:
    """The numbers that come up more than once, and how many were looked at."""
    first: dict[tuple[str, str], _Part] = {}
    more: dict[tuple[str, str], list[_Part]] = defaultdict(list)
    for key, part in _all(ctx):
        if first.setdefault(key, part) is not part:
            more[key].append(part)
    found = {key: dict(_owner(part) for part in (first[key], *parts)) for key, parts in more.items()}
    return Numbers(len(first), {key: carried for key, carried in found.items() if len(carried) > 1})


def _all(ctx: Context) -> Iterator[tuple[tuple[str, str], _Part]]:
    for _, gpu in ctx.gpus():
        if gpu.fact.uuid:
            yield ("GPU UUID", gpu.fact.uuid), gpu
    for _, nic in ctx.nics():
        if nic.fact.guid and nic.fact.guid.strip("0x"):
            yield ("HCA GUID", nic.fact.guid), nic
    for switch in ctx.facts.switches:
        if switch.guid and switch.guid.strip("0x"):
            yield ("switch GUID", switch.guid), switch


def _owner(part: _Part) -> tuple[_Owner, Source]:
    if isinstance(part, GpuView):
        return _Owner(part.node, part.label), part.source("uuid")
    if isinstance(part, NicView):
        # The ports of an HCA share its GUID, and so do several devices made of one PCI function.
        return _Owner(part.node, part.fact.pci or part.fact.name), part.source("guid")
    return _Owner(part.name, ""), part.source


def _is_anonymous(owner: _Owner, source: Source) -> bool:
    """Whether the node is one that NCCL's dump calls by a hash: it is another node of the site under a made-up name."""
    return owner.node.startswith("host-") and source.reader.startswith("nccl")


def _is_whole(ctx: Context, names: frozenset[str], shared: int) -> bool:
    """Whether these are several nodes, and that many numbers, more than one, are all that one of them has."""
    if len(names) < 2 or shared < 2:
        return False
    nodes = [ctx.nodes[name] for name in names if name in ctx.nodes]
    return any(
        shared
        == len({gpu.fact.uuid for gpu in node.gpus if gpu.fact.uuid})
        + len({nic.fact.guid for nic in node.nics if nic.fact.guid})
        for node in nodes
    )


def _machine(rule: Rule, names: frozenset[str], shared: Sequence[tuple[str, str, Carried]]) -> Finding:
    return rule.fail(
        listed(names),
        f"{len(names)} names share all {len(shared)} GPU UUIDs and HCA GUIDs: one machine captured under several names",
        shared[0][2].values(),
        "leave the captures under the old name out",
        mild=True,
    )


def _parts(rule: Rule, shared: Sequence[tuple[str, str, Carried]]) -> Iterator[Finding]:
    for what, number, carried in shared:
        subject = " and ".join(f"{owner.node} {owner.place}".strip() for owner in carried)
        yield rule.fail(subject, f"{what} {number} is used {len(carried)} times", carried.values(), _REFLASH)


def _names(rule: Rule, ctx: Context) -> list[Finding]:
    """Switches that go by one name. Readers put the GUID behind the name of those that share it in one capture."""
    switches = [switch for switch in ctx.facts.switches if switch.guid and switch.guid.strip("0x")]
    if not switches:
        return [rule.not_applicable("no capture lists switches by their GUID")]
    named: dict[str, dict[str, SwitchFact]] = defaultdict(dict)
    for switch in sorted(switches, key=lambda one: (one.name, one.guid or "", str(one.source))):
        guid = switch.guid or ""
        if name := switch.name.removesuffix(guid).removesuffix("-"):
            named[name].setdefault(guid, switch)
    findings = []
    for name, own in named.items():
        if len(own) > 1:
            shown = listed(own, 4)
            findings.append(
                rule.fail(
                    f"switch {name}",
                    f"{len(own)} switches are called {name}: GUIDs {shown}",
                    [switch.source for switch in own.values()],
                    "give each its own name (hostname on a managed switch, else a node name map of the fabric manager):"
                    " until then they are told apart by GUID",
                )
            )
    guids = {switch.guid for switch in switches}
    return rule.close(findings, f"names of {len(guids)} switches looked at: each is used once")


RULES = (
    Rule("fabric/guids", Severity.ERROR, "GPU UUIDs and HCA and switch GUIDs are used once", _check),
    Rule("fabric/switch-names", Severity.WARNING, "every switch has a name of its own", _names),
)
