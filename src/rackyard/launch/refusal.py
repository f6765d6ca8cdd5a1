"""Whether an audit keeps a job from starting: errors that concern the nodes it would get, and are not accepted."""

import re
from collections.abc import Collection, Iterable

from rackyard.fabric import Site
from rackyard.findings import Finding, Severity, Verdict

_WORD = re.compile(r"[\w.\-]+")
_CUT = re.compile(r" and \d+ more\b")
"""How a finding ends a list of names that it does not finish (`fabric.expect.words.listed`)."""


def refusals(
    findings: Iterable[Finding], site: Site, nodes: Collection[str], accepted: Collection[str]
) -> tuple[Finding, ...]:
    """The errors that stand in the way of a job on `nodes`; rules named in `accepted` do not.

    A finding concerns the nodes that its subject names; else, and where it names some of them only, the racks, leaves
    or NVLink domains it names; else the whole site.
    """
    wanted = frozenset(nodes)
    ours = {site.node(name).rack for name in wanted} | {str(site.node(name).domain) for name in wanted}
    ours |= {nic.leaf for name in wanted for nic in site.node(name).nics}
    places = {rack.name for rack in site.racks} | {leaf.name for leaf in site.leaves}
    places |= {str(node.domain) for node in site.nodes}
    return tuple(
        finding
        for finding in findings
        if finding.verdict is Verdict.FAIL
        and finding.severity is Severity.ERROR
        and finding.rule not in accepted
        and _concerns(finding.subject, site, wanted, (places, ours))
    )


def _concerns(subject: str, site: Site, nodes: frozenset[str], places: tuple[Collection[str], Collection[str]]) -> bool:
    words = frozenset(_WORD.findall(subject))
    named = [] if _CUT.search(subject) else [word for word in words if site.has_node(word)]
    if named:
        return not nodes.isdisjoint(named)
    everywhere, ours = places
    named = [word for word in words if word in everywhere]
    return not named or any(word in ours for word in named)
