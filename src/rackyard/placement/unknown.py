"""A request that names what the site does not have: a kind of GPU, a rail, a node, a rack."""

import difflib
import re
from collections.abc import Iterable

from rackyard.fabric import Site
from rackyard.placement.change import names
from rackyard.placement.model import RackVerdict, Rejection, Request
from rackyard.placement.yard import Yard

_NEAR = 3
"""Unknown names that a fix offers the nearest one for."""


def mismatch(request: Request, yard: Yard) -> Rejection | None:
    """The rejection of such a request."""
    site = yard.columns.site
    classes = [group for group in yard.columns.classes if request.gpu_kind in (None, group.gpu)]
    if not classes:
        kinds = sorted({group.gpu for group in yard.columns.classes})
        wanted = f"{request.gpu_kind} GPUs" if request.gpu_kind else "GPUs"
        fix = f"gpu: one of {', '.join(kinds)}" if kinds else "give the site some nodes"
        return flat(site, "gpu-kind", f"site {site.name} has no {wanted}", fix)
    rails = sorted({rail for group in classes for rail in group.rails})
    if request.rail is not None and request.rail not in rails:
        known = ", ".join(str(rail) for rail in rails) or "none"
        summary = f"there is no rail {request.rail}: the rails here are {known}"
        return flat(site, "rail", summary, f"rails: one of {known}")
    return _strangers(request, yard)


def _strangers(request: Request, yard: Yard) -> Rejection | None:
    """Names of nodes and racks. A misspelt one in `exclude` would be let in: Slurm refuses these as well."""
    site = yard.columns.site
    strangers = sorted(name for name in request.pin if name not in yard.columns.index)
    if strangers:
        summary = f"the gang is pinned to {names(strangers)}, which site {site.name} does not have with GPUs"
        return flat(
            site, "pin", summary, _near(strangers, yard.columns.names, "pin nodes that `rackyard nodes ls` shows")
        )
    strangers = sorted(name for name in request.exclude if not site.has_node(name))
    if strangers:
        summary = f"`nodes.exclude` names {names(strangers)}, which site {site.name} does not have"
        known = [node.name for node in site.nodes]
        return flat(site, "exclude", summary, _near(strangers, known, "name nodes that `rackyard nodes ls` shows"))
    racks = [rack.name for rack in site.racks]
    strangers = sorted(request.exclude_racks.difference(racks))
    if strangers:
        summary = f"`nodes.exclude_racks` names {names(strangers)}, which site {site.name} does not have"
        return flat(site, "exclude", summary, _near(strangers, racks, f"racks: {names(racks)}"))
    return None


def flat(site: Site, constraint: str, summary: str, fix: str) -> Rejection:
    """The same verdict for every rack: none of them matters."""
    racks = tuple(RackVerdict(rack.name, False, constraint, summary, 0, 0) for rack in site.racks)
    return Rejection(constraint, summary, racks, fix)


def _near(words: Iterable[str], known: Iterable[str], otherwise: str) -> str:
    """`did you mean r01-t01?`: the same but for zeros in front of numbers, else the nearest."""
    there = {name.lower(): name for name in known}
    plain = {_plain(name): name for name in there}
    near = []
    for word in list(words)[:_NEAR]:
        same = plain.get(_plain(word.lower()))
        near += [same] if same else difflib.get_close_matches(word.lower(), there, 1)
    return f"did you mean {', '.join(there[name] for name in near)}?" if near else otherwise


def _plain(name: str) -> str:
    return re.sub(r"0+(?=\d)", "", name)
