"""What is kept out of use on the site, as the fold of the `site` stream."""

from collections.abc import Iterable, Mapping

from rackyard.fabric import Health, Site
from rackyard.jobs.events import Cordoned, Record, Returned

SITE_STREAM = "site"


def cordons(records: Iterable[Record]) -> dict[str, str]:
    """Every node and rack that is out of use, with the reason."""
    out: dict[str, str] = {}
    for record in records:
        match record.event:
            case Cordoned(subject=subject, why=why):
                out.setdefault(subject, why)
            case Returned(subject=subject):
                out.pop(subject, None)
            case _:
                pass
    return out


def with_cordons(site: Site, out: Mapping[str, str]) -> Site:
    """The site with those nodes cordoned, and those racks' NVLink domains down.

    What a cordoned node's health is nobody knows before it is looked at: it is not called healthy meanwhile.
    """
    racks = {rack.name for rack in site.racks}
    site = site.with_health(nvlink={name: Health.DOWN for name in out if name in racks})
    nodes = {name: why for name, why in out.items() if site.has_node(name)}
    return site.with_health(nodes=dict.fromkeys(nodes, Health.UNKNOWN)).with_cordon(nodes)
