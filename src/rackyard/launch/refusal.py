"""Whether an audit keeps a job from starting: errors that concern the nodes it would get, and are not accepted."""

import re
from collections.abc import Collection, Iterable

from rackyard.fabric import Site
from rackyard.findings import Finding, Severity, Verdict

_WORD = re.compile(r"[\w.\-]+")


def refusals(
    findings: Iterable[Finding], site: Site, nodes: Collection[str], accepted: Collection[str]
) -> tuple[Finding, ...]:
    """The errors that stand in the way of a job on `nodes`; rules named in `accepted` do not.

    A finding concerns the nodes that its subject names; else the racks or leaves it names; else the whole site.
    """
    wanted = frozenset(nodes)
    racks = {site.node(name).rack for name in wanted}
    leaves = {nic.leaf for name in wanted for nic in site.node(name).nics}
    places = {rack.name for rack in site.racks} | {leaf.name for leaf in site.leaves}
    return tuple(
        finding
        for finding in findings
        if finding.verdict is Verdict.FAIL
        and finding.severity is Severity.ERROR
        and finding.rule not in accepted
        and _concerns(frozenset(_WORD.findall(finding.subject)), site, wanted, (places, racks | leaves))
    )


def _concerns(
    words: frozenset[str], site: Site, nodes: frozenset[str], places: tuple[Collection[str], Collection[str]]
) -> bool:
    named = [word for word in words if site.has_node(word)]
    if named:
        return not nodes.isdisjoint(named)
    everywhere, ours = places
    named = [word for word in words if word in everywhere]
    return not named or any(word in ours for word in named)
