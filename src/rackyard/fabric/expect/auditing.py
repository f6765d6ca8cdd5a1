"""The audit: every rule, in the order in which a person would look."""

from rackyard.fabric.bulk import uncollected
from rackyard.fabric.discover import Discovered
from rackyard.fabric.expect import (
    cable_rate,
    domains,
    fabric_health,
    firmware,
    gpu_links,
    guids,
    hcas,
    locality,
    nvswitch,
    pci_links,
    ports,
    tray_gpus,
    trays,
)
from rackyard.fabric.expect.context import build
from rackyard.fabric.expect.design import diff
from rackyard.fabric.expect.noted import NOTED, Noted
from rackyard.fabric.expect.rails import RULES as CABLE_RULES
from rackyard.fabric.expect.rails import CableRule
from rackyard.fabric.expect.rules import Rule
from rackyard.fabric.facts import Facts
from rackyard.fabric.model import Site
from rackyard.fabric.sitefacts import facts_of
from rackyard.findings import Finding, Verdict

RULES: tuple[Rule, ...] = (
    *gpu_links.RULES,
    *fabric_health.RULES,
    *domains.RULES,
    *trays.RULES,
    *tray_gpus.RULES,
    *nvswitch.RULES,
    *hcas.RULES,
    *ports.RULES,
    *locality.RULES,
    *pci_links.RULES,
    *cable_rate.RULES,
    *guids.RULES,
    *firmware.RULES,
)
"""All rules over facts."""

ALL_RULES: tuple[Rule | CableRule | Noted, ...] = (*RULES, *CABLE_RULES, *NOTED)
"""Every id that a finding about the fabric can have."""


def audit(found: Discovered, design: Site | None = None) -> tuple[Finding, ...]:
    """What every rule says of a site as it was discovered, those about its cables last."""
    cables: list[Finding] = []
    with uncollected():
        for rule in CABLE_RULES:
            cables += rule.check(found) or [rule.well(found)]
        return (*audit_facts(found.facts, found.site, design), *cables)


def audit_facts(facts: Facts, site: Site, design: Site | None = None) -> tuple[Finding, ...]:
    """What every rule says, rule by rule: of each, what failed and what could not be judged, or that all is well.

    Without a design the pattern of the site is the expectation; with one the design is, and what differs from it is
    appended (`fabric/design`). A site without facts is audited by what it holds. The order of facts does not matter.
    """
    if not (facts.hosts or facts.gpus or facts.nics or facts.cables or facts.nvports):
        facts = facts_of(site)
    context = build(facts, site, design)
    findings: list[Finding] = []
    for rule in RULES:
        findings += sorted(rule.check(rule, context), key=_order)
    if design is not None:
        findings += diff(site, design)
    return tuple(findings)


_FIRST = {Verdict.FAIL: 0, Verdict.UNKNOWN: 1, Verdict.PASS: 2, Verdict.NOT_APPLICABLE: 3}


def _order(finding: Finding) -> tuple[int, str, str]:
    return _FIRST[finding.verdict], finding.subject, finding.summary
