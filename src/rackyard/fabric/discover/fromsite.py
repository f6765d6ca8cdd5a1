"""A site as if it had just been discovered from its own description."""

from rackyard.fabric.discover.merge import Discovered, merge
from rackyard.fabric.model import Site
from rackyard.fabric.sitefacts import facts_of


def restated(site: Site) -> Discovered:
    """The site itself, with the facts, cables and rails that its description amounts to."""
    found = merge(facts_of(site), site.name, simulated=site.simulated)
    return Discovered(site, found.facts, found.cabling, found.rails, found.findings)
