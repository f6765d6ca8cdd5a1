"""A decision that can be made again: the request, what was in use and the site's digest, with the answer given then.

case = record(request, site, occupancy, place(request, site, occupancy))      # plain data, for a file or an event
again(case, site) == answer_of(case)                                          # on any machine with the same site
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Annotated, Any

import msgspec

from rackyard.errors import UsageError
from rackyard.fabric import Site
from rackyard.placement.codec import decode, encode
from rackyard.placement.engine import place
from rackyard.placement.model import Occupancy, Placement, RackVerdict, Rejection, Request

FORM = 1
"""Of the data; a change that older readers can't take raises it."""


def record(request: Request, site: Site, occupancy: Occupancy, answer: Placement | Rejection) -> dict[str, Any]:
    """The case as dicts, lists, text and numbers. Names are sorted, so that equal cases are equal text."""
    return {
        "rackyard-placement": FORM,
        "site": {"name": site.name, "digest": site.digest()},
        "request": request_data(request),
        "used": {name: sorted(gpus) for name, gpus in sorted(occupancy.used.items())},
        "owners": {name: list(jobs) for name, jobs in sorted(occupancy.owners.items())},
        "names": dict(sorted(occupancy.names.items())),
        "answer": {"placement": encode(answer)} if isinstance(answer, Placement) else {"rejection": asdict(answer)},
    }


def again(case: Mapping[str, Any], site: Site) -> Placement | Rejection:
    """The answer made anew. UsageError for a case that can't be read, or made on another site."""
    request, occupancy, digest = _read(case)
    if site.digest() != digest:
        raise UsageError(
            f"the case was decided on another site, or on this one in another state (digest {digest[:12]}...)",
            why=f"site {site.name} as given has the digest {site.digest()[:12]}...",
            fix="give the site file as it was then: --site FILE",
        )
    return place(request, site, occupancy)


def answer_of(case: Mapping[str, Any]) -> Placement | Rejection:
    """The answer that was given then. UsageError for a case that can't be read."""
    try:
        answer = case["answer"]
        if "placement" in answer:
            return decode(answer["placement"])
        told = answer["rejection"]
        racks = tuple(RackVerdict(**verdict) for verdict in told["racks"])
        return Rejection(told["constraint"], told["summary"], racks, told["fix"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(error) from None


def request_data(request: Request) -> dict[str, Any]:
    """A request as plain data; sets are sorted lists."""
    data = asdict(request)
    return {key: sorted(value) if isinstance(value, frozenset) else value for key, value in data.items()}


def request_from(data: Mapping[str, Any]) -> Request:
    """What `request_data` made. ValueError for anything else (msgspec.ValidationError is one)."""
    unknown = sorted(set(data) - {field.name for field in fields(Request)})
    if unknown:
        raise ValueError(f"a request has no {unknown[0]!r}")
    return msgspec.convert(data, Request)


class _Case(msgspec.Struct, frozen=True):
    """What a case was decided on."""

    form: int = msgspec.field(name="rackyard-placement")
    request: dict[str, Any]
    site: dict[str, str]
    used: dict[str, frozenset[Annotated[int, msgspec.Meta(ge=0, le=31)]]]
    owners: dict[str, tuple[str, ...]]
    names: dict[str, str] = {}


def _read(case: Mapping[str, Any]) -> tuple[Request, Occupancy, str]:
    try:
        read = msgspec.convert(case, _Case)
        if read.form != FORM:
            raise ValueError(f"form {read.form}, this version reads {FORM}")
        return request_from(read.request), Occupancy(read.used, read.owners, read.names), read.site["digest"]
    except (KeyError, ValueError) as error:
        raise _unreadable(error) from None


def _unreadable(error: Exception) -> UsageError:
    what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
    return UsageError("this is no placement case", why=what, fix="give a file that `rackyard plan --record FILE` wrote")
