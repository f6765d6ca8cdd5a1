"""A site as `topo export --to json` wrote it. `load` gives the very site; as a capture among others it is told as
facts.
"""

import re
from typing import Literal

import msgspec

from rackyard.errors import SpecError, Where
from rackyard.fabric.facts import Facts
from rackyard.fabric.model import Leaf, Node, Provenance, Rack, Site, Spine
from rackyard.fabric.readers.reader import MAX_BYTES, Capture, Reader
from rackyard.fabric.sitefacts import facts_of

NAME = "site-json"

_FIRST = re.compile(r'^\s*\{\s*"format"\s*:\s*"rackyard\.site"')
_BYTE = re.compile(r"\(byte (\d+)\)")


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal["rackyard.site"]
    version: Literal[1]
    name: str
    simulated: bool
    racks: tuple[Rack, ...]
    nodes: tuple[Node, ...]
    leaves: tuple[Leaf, ...]
    spines: tuple[Spine, ...]
    provenance: Provenance


_document = msgspec.json.Decoder(_Document)


def load(data: bytes, file: str = "<site>") -> Site:
    """The site that `writers.site_json.write` wrote. SpecError, with its place where the JSON is broken."""
    if len(data) > MAX_BYTES:
        raise SpecError("the site file is too large", where=Where(file), fix=f"at most {MAX_BYTES // 2**20} MiB")
    try:
        found = _document.decode(data)
        return Site(
            name=found.name,
            simulated=found.simulated,
            racks=found.racks,
            nodes=found.nodes,
            leaves=found.leaves,
            spines=found.spines,
            provenance=found.provenance,
        )
    except msgspec.ValidationError as error:
        raise SpecError("not a site of ours", where=Where(file), why=str(error)[:300], fix="export it again") from None
    except msgspec.DecodeError as error:
        place = _BYTE.search(str(error))
        at = int(place[1]) if place else 0
        where = Where(file, data.count(b"\n", 0, at) + 1, at - data.rfind(b"\n", 0, at))
        raise SpecError("not JSON", where=where, why=str(error)[:200]) from None
    except ValueError as error:
        raise SpecError("the site contradicts itself", where=Where(file), why=str(error)[:300]) from None
    except RecursionError:
        raise SpecError("the JSON is nested too deep", where=Where(file)) from None


def _read(capture: Capture) -> Facts:
    return facts_of(load(capture.data, capture.file))


def _knows(head: str, file: str) -> bool:
    del file
    return bool(_FIRST.search(head))


READER = Reader(NAME, _knows, _read)
