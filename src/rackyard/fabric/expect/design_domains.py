"""NVLink domains as designed against as found. A designed key may be made up, so it is not compared: what counts is
which nodes share a domain. A node whose captures tell no domain at all is unknown, never moved.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from rackyard.fabric.expect.design_tell import MANY, Teller, unknown
from rackyard.fabric.expect.majority import by_count, pattern
from rackyard.fabric.expect.words import listed
from rackyard.fabric.model import DomainKey, Node, Site
from rackyard.findings import Finding

Groups = Mapping[DomainKey | None, Sequence[Node]]
"""The found nodes of one designed domain by the domain they are in; None is no domain beyond the node."""

_PARTITION = "look at the partition in NMX and at the fabric state of the GPUs; place no gang over both sides"
_LOST = "look at the fabric manager and at the fabric state of the GPUs; place no gang on it"
_ONE = "look at the partitions in NMX, or correct the design"


def domains(found: Site, design: Site) -> Iterator[Finding]:
    """Domains that are split, nodes that are outside theirs, and domains that are one."""
    tell = Teller(found, design)
    planned = _planned(found, design)
    nodes = [node for own in planned.values() for node in own]
    silent = [node.name for node in nodes if not _tells(node)]
    shared = [node for node in nodes if not node.domain.is_own]
    meant = sum(len(own) for key, own in planned.items() if not key.is_own)
    if meant and not shared:
        yield unknown("site", f"{meant} nodes share NVLink domains by design, and no capture tells a domain")
        return
    if silent:
        yield unknown("site", f"the NVLink domain of {len(silent)} nodes is not known: {listed(silent, MANY)}")
    homes: dict[DomainKey, list[DomainKey]] = defaultdict(list)
    grouped = {key: _groups(own) for key, own in planned.items()}
    for key, groups in grouped.items():
        if (main := _main(groups)) is not None:
            homes[main].append(key)
    for key, groups in grouped.items():
        if not key.is_own:
            yield from _one(tell, key, groups, homes, planned)
    for here, keys in sorted(homes.items()):
        if len(keys) > 1:
            yield _merged(tell, here, [(key, planned[key]) for key in sorted(keys)])


def _planned(found: Site, design: Site) -> dict[DomainKey, list[Node]]:
    """The found nodes of every designed domain. A tray that is alone by design is one of which the design says nothing;
    a server of eight GPUs is alone because it shares nothing."""
    planned: dict[DomainKey, list[Node]] = defaultdict(list)
    for node in design.nodes:
        if found.has_node(node.name) and (not node.domain.is_own or node.kind == "hgx"):
            planned[node.domain].append(found.node(node.name))
    return planned


def _tells(node: Node) -> bool:
    """Whether somebody told its domain: a driver gives UUIDs of GPUs, and with them what the GPU is a member of."""
    return not node.domain.is_own or any(gpu.uuid for gpu in node.gpus)


def _groups(nodes: Sequence[Node]) -> Groups:
    groups: dict[DomainKey | None, list[Node]] = defaultdict(list)
    for node in nodes:
        if _tells(node):
            groups[None if node.domain.is_own else node.domain].append(node)
    return groups


def _main(groups: Groups) -> DomainKey | None:
    """The domain that more than half of the nodes are in."""
    return pattern({key: len(nodes) for key, nodes in groups.items()})


def _one(
    tell: Teller,
    key: DomainKey,
    groups: Groups,
    homes: Mapping[DomainKey, Sequence[DomainKey]],
    planned: Mapping[DomainKey, Sequence[Node]],
) -> Iterator[Finding]:
    """What is wrong with one designed domain."""
    if not groups or (len(groups) == 1 and None not in groups):
        return
    total = sum(map(len, groups.values()))
    main = _main(groups)
    if main is None:
        shown = by_count({_word(other): len(nodes) for other, nodes in groups.items()})
        whole = f"none of {total} nodes is in an NVLink domain; by design they share one"
        summary = (
            f"{total} nodes that share an NVLink domain by design are in several: {shown}" if len(groups) > 1 else whole
        )
        pair = (f"{total} nodes in {key}", shown)
        everyone = [node for own in groups.values() for node in own]
        yield tell(_where(everyone), summary, _PARTITION if len(groups) > 1 else _LOST, pair)
        return
    rest = f"{len(groups[main])} of {total} nodes that share a domain by design are in {main}"
    for other, nodes in groups.items():
        if other == main:
            continue
        of = homes.get(other, ()) if other is not None else ()
        theirs = f", where rack {listed(node.rack for one in of for node in planned[one])} is" if of else ""
        what = f"in {other}{theirs}" if other is not None else "in no NVLink domain"
        verb = "is" if len(nodes) == 1 else f"{len(nodes)} nodes are"
        pair = (f"{total} nodes in {key}", f"{listed((node.name for node in nodes), MANY)} {what}")
        yield tell(_where(nodes), f"{verb} {what}; {rest}", _LOST if other is None else _PARTITION, pair)


def _merged(tell: Teller, here: DomainKey, keys: Sequence[tuple[DomainKey, Sequence[Node]]]) -> Finding:
    nodes = [node for _, own in keys for node in own if node.domain == here]
    summary = f"{len(nodes)} nodes are in one NVLink domain, {here}; by design they are {len(keys)}"
    pair = (listed((str(key) for key, _ in keys), MANY), str(here))
    return tell(_where(nodes), summary, _ONE, pair)


def _word(key: DomainKey | None) -> str:
    return "no domain" if key is None else str(key)


def _where(nodes: Sequence[Node]) -> str:
    rack = f"rack {listed(node.rack for node in nodes)}"
    return f"{rack}, node {nodes[0].name}" if len(nodes) == 1 else f"{rack}, {listed(node.name for node in nodes)}"
