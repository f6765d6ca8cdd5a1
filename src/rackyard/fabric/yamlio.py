"""A site as YAML that people write: `load(text, file)` and `dump(site)`, which undo one another exactly.

    simulate: {racks: 2, trays: 18, hgx: 2, gpu: GB300}      # the short form, for a made-up site

    name: lab                                                # the long form
    racks:
      r01: {switch_trays: 9}
    nodes:
      r01-t01: {shape: GB300, rack: r01, slot: 1}
      r01-t02: {shape: GB300, rack: r01, slot: 2, cordoned: "fan", gpu_health: {2: down}}

What is left out takes the usual value: a node has the shape of its GPU kind, its rack's NVLink domain (or its own),
the leaf `leaf-<rail>-<rack>` on every rail, and is healthy, for whoever writes the file says so. `yamlcables` has the
form of the NVLink map of a rack.
"""

from rackyard.errors import RackyardError
from rackyard.fabric import kinds
from rackyard.fabric.model import (
    DomainKey,
    Health,
    Leaf,
    Node,
    Provenance,
    Rack,
    Site,
    Spine,
    SwitchTray,
)
from rackyard.fabric.simulate import node_domain, simulate
from rackyard.fabric.yamlcables import load_cables
from rackyard.fabric.yamldump import dump
from rackyard.fabric.yamlread import Value, read
from rackyard.fabric.yamlshape import (
    Shape,
    builtin,
    default_domain,
    default_leaves,
    default_switch_trays,
    dress,
    integer,
    load_shape,
    text,
)

__all__ = ["dump", "load"]

_TOP = ("simulated", "provenance", "shapes", "racks", "nodes", "leaves", "spines")
_COUNTS = ("racks", "trays", "hgx", "racks_per_block")
_NODE = (
    *("domain", "uuids", "leaves", "guids", "leaf_ports"),
    *("gpu_health", "nic_health", "health", "cordoned", "tray", "chassis"),
)


def load(document: str, file: str = "<site>") -> Site:
    """The site that `document` describes; `file` names it in complaints. SpecError with line and column."""
    top = read(document, file)
    if "simulate" in top.entries():
        return _simulated(top)
    found = top.fields(("name",), _TOP)
    simulated = found["simulated"].flag() if "simulated" in found else False
    shapes = builtin()
    if "shapes" in found:
        shapes |= {name: load_shape(value) for name, value in found["shapes"].entries().items()}
    racks = {name: _rack(name, value, simulated) for name, value in _entries(found, "racks").items()}
    nodes = tuple(_node(name, value, racks, shapes, simulated) for name, value in _entries(found, "nodes").items())
    spines = tuple(_spine(value) for value in found["spines"].items()) if "spines" in found else ()
    leaves = (
        tuple(_leaf(name, value) for name, value in found["leaves"].entries().items())
        if "leaves" in found
        else default_leaves(nodes, spines, simulated)
    )
    return Site(
        name=found["name"].text(),
        simulated=simulated,
        racks=tuple(racks.values()),
        nodes=nodes,
        leaves=leaves,
        spines=spines,
        provenance=_provenance(found["provenance"])
        if "provenance" in found
        else Provenance("yaml", file, top.line, simulated),
    )


def _simulated(top: Value) -> Site:
    given = top.fields(("simulate",))["simulate"]
    found = given.fields((), (*_COUNTS, "gpu", "hgx_gpu", "name"))
    counts = {key: value.integer() for key, value in found.items() if key in _COUNTS}
    words = {key: value.text() for key, value in found.items() if key not in counts}
    try:
        return simulate(**counts, **words)  # type: ignore[arg-type]  # keys checked above
    except RackyardError as error:
        given.fail(error.what, why=error.why, fix=error.fix)


def _entries(found: dict[str, Value], key: str) -> dict[str, Value]:
    return found[key].entries() if key in found else {}


def _rack(name: str, value: Value, simulated: bool) -> Rack:
    found = value.fields((), ("domain", "switch_trays", "nvlink", "nvlinks"))
    trays = _switch_trays(name, found["switch_trays"]) if "switch_trays" in found else ()
    domain = _domain(found["domain"]) if "domain" in found else default_domain(name, bool(trays), simulated)
    nvlinks = (
        tuple(cable for part in found["nvlinks"].items() for cable in load_cables(part)) if "nvlinks" in found else ()
    )
    return Rack(name, domain, trays, _health(found, "nvlink"), nvlinks)


def _switch_trays(rack: str, value: Value) -> tuple[SwitchTray, ...]:
    if value.is_scalar:
        return default_switch_trays(rack, value.integer(0, 1_000))
    trays = []
    for part in value.items():
        found = part.fields(("name", "slot"), ("rack", "asics", "health"))
        asics = integer(found, "asics", kinds.ASICS_PER_SWITCH_TRAY)
        where = found["rack"].text() if "rack" in found else rack
        slot = found["slot"].integer(-1)
        trays.append(SwitchTray(found["name"].text(), where, slot, asics, _health(found, "health")))
    return tuple(trays)


def _node(name: str, value: Value, racks: dict[str, Rack], shapes: dict[str, Shape], simulated: bool) -> Node:
    found = value.fields(("shape", "rack", "slot"), _NODE)
    shape = shapes[found["shape"].choice(shapes)]
    rack = racks[found["rack"].choice(racks)]
    domain = _domain(found["domain"]) if "domain" in found else rack.domain
    gpus, nics = dress(shape, name, rack.name, found, simulated)
    return Node(
        name=name,
        kind=shape.kind,
        rack=rack.name,
        slot=found["slot"].integer(-1),
        domain=node_domain(name) if domain is None else domain,
        gpus=gpus,
        nics=nics,
        cpus=shape.cpus,
        health=_health(found, "health"),
        cordoned=text(found, "cordoned"),
        tray=integer(found, "tray", -1),
        chassis=text(found, "chassis"),
        pci=shape.pci,
    )


def _leaf(name: str, value: Value) -> Leaf:
    found = value.fields(("rail", "rack"), ("uplinks", "spines", "guid"))
    spines = tuple(part.text() for part in found["spines"].items()) if "spines" in found else ()
    uplinks = integer(found, "uplinks", 0)
    return Leaf(name, found["rail"].integer(-1), found["rack"].text(), uplinks, spines, text(found, "guid"))


def _spine(value: Value) -> Spine:
    if value.is_scalar:
        return Spine(value.text())
    found = value.fields(("name",), ("guid", "above"))
    above = tuple(part.text() for part in found["above"].items()) if "above" in found else ()
    return Spine(found["name"].text(), text(found, "guid"), above)


def _provenance(value: Value) -> Provenance:
    found = value.fields(("reader",), ("file", "line", "simulated"))
    return Provenance(
        found["reader"].text(),
        text(found, "file"),
        found["line"].integer(1) if "line" in found else None,
        found["simulated"].flag() if "simulated" in found else False,
    )


def _domain(value: Value) -> DomainKey | None:
    text = value.text()
    if text == "none":
        return None
    cluster, _, clique = text.rpartition(".")
    if not cluster or not clique.isascii() or not clique.isdecimal() or len(clique) > 18:
        fix = "as in the label nvidia.com/gpu.clique, or none"
        value.fail(f"{text[:60]!r} is not <cluster UUID>.<clique id>", fix=fix)
    return DomainKey(cluster, int(clique))


def _health(found: dict[str, Value], key: str) -> Health:
    return Health(found[key].choice(Health)) if key in found else Health.HEALTHY
