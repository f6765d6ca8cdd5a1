"""`lldpctl -f json` and `-f json0`, taken on a host: which switch port each of its interfaces hears.

The two forms are read off lldpd (src/client/json_writer.c). `json0` is all lists, with `name` and `value` as members;
`json` drops lists of one and objects of `value` alone, and makes a `name` the key of what it names; so each level may
be either.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rackyard.errors import UsageError, Where
from rackyard.fabric.facts import CableFact, End, Facts, NicFact, Source
from rackyard.fabric.readers.jsontext import Lines, decode, json_bytes
from rackyard.fabric.readers.reader import Capture, Reader

NAME = "lldp"

_FORWARDING = frozenset({"bridge", "router"})


def read(capture: Capture) -> Facts:
    """The leaf and leaf port of each interface that hears a switch, as a NIC's and as a cable's word.

    Neighbours that forward nothing (hosts, management controllers) are no leaves and are passed over.

    Raises:
        UsageError: not such JSON; or nobody knows which host it was taken on.
    """
    data = json_bytes(capture)
    top = decode(capture, data, dict[str, Any])
    if "lldp" not in top:
        raise UsageError("this JSON is not lldpctl's: it has no `lldp`", where=Where(capture.file, 1))
    lines = Lines(data)
    facts = Facts()
    for root in _each(top["lldp"]):
        for name, about in _named(root.get("interface")):
            leaf = _leaf(about)
            if leaf is not None:
                _tell(capture, lines, facts, name, leaf)
    return facts


def _tell(capture: Capture, lines: Lines, facts: Facts, name: str, leaf: tuple[str, str]) -> None:
    if not capture.node:
        raise UsageError(
            "lldpctl's output does not say which host it was taken on",
            where=Where(capture.file),
            fix="put the file into a folder named after its host",
        )
    switch, port = leaf
    source = Source(NAME, capture.file, lines.of(f'"{name}"'.encode()), f"lldp.interface.{name}: {switch} {port}")
    facts.nics.append(
        NicFact(
            node=capture.node,
            source=source,
            name=name,
            netdev=name,
            link_layer="Ethernet",
            leaf=switch,
            leaf_port=port or None,
        )
    )
    facts.cables.append(
        CableFact(
            a=End("hca", capture.node, name, 1), b=End("switch", switch, port, 0) if port else None, source=source
        )
    )


def _leaf(about: Mapping[str, Any]) -> tuple[str, str] | None:
    """Name and port of the switch that is heard; None where it is none, or the answer is of the interface itself."""
    if _text(about.get("via")).lower() == "unknown":  # `show interfaces` instead of `show neighbors`
        return None
    for name, chassis in _named(about.get("chassis"), "id"):
        able = {_text(c.get("type")).lower(): c.get("enabled") is True for c in _each(chassis.get("capability"))}
        if able and not any(able.get(kind) for kind in _FORWARDING):
            continue
        switch = name or _text(chassis.get("id"))
        for port in _each(about.get("port")):
            own = next(iter(_each(port.get("id"))), {})
            descr = _text(port.get("descr"))
            # Some switches send a MAC address as the port's id, and its name as the description.
            by_mac = _text(own.get("type")) == "mac"
            return (switch, (descr if by_mac else "") or _text(own) or descr) if switch else None
    return None


def _each(value: Any) -> Iterator[Mapping[str, Any]]:
    """The objects of a list, or the one that stands there without a list."""
    for part in value if isinstance(value, list) else [value]:
        if isinstance(part, dict):
            yield part


def _named(value: Any, own: str = "via") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Objects with their names: a member `name`, or the key under which they stand. `own` is a member that only an
    object without such a key has."""
    for part in _each(value):
        if "name" in part:
            yield _text(part["name"]), part
        elif own in part:
            yield "", part
        else:
            for name, inner in part.items():
                yield from ((name, about) for about in _each(inner))


def _text(value: Any) -> str:
    if isinstance(value, list):
        return _text(value[0]) if value else ""
    if isinstance(value, dict):
        return _text(value.get("value"))
    return value if isinstance(value, str) else ""


def _knows(head: str, file: str) -> bool:
    return head.lstrip("\ufeff \t\r\n").startswith("{") and '"lldp"' in head[:200]


READER = Reader(NAME, _knows, read)
