"""Which node labels mean what: a table in `labelkeys.toml`, to which a site may lay its own.

table = shipped()                          # or load(text, "keys.toml")
table.meaning("fabric.topograph.run/tier-1")   # LabelKey(fact=Fact.TIER, …), 1
table.written(("topograph",))              # what a plan writes when topograph's keys are asked for
"""

import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any, NoReturn

from rackyard.errors import SpecError, UsageError, Where
from rackyard.fabric.yamlread import did_you_mean

MAX_CHARS = 1_000_000
"""A table takes about 300 characters a key; what is longer than this is no table."""

_DNS = re.compile(
    r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
)  # RFC 1123, as Kubernetes checks it
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_RESERVED = ("kubernetes.io", "k8s.io")


class Fact(StrEnum):
    """What the value of a label says. The last words of each line are the form of the value."""

    DOMAIN = "domain"
    """NVLink domain: `<ClusterUUID>.<CliqueID>`, or `node.<name>.0` for a server that is its own."""
    FABRIC_CLIQUE = "fabric-clique"
    """The pair as the fabric reported it: `<ClusterUUID>.<CliqueID>`, and nothing where there is no such fabric."""
    CLIQUE_ID = "clique-id"
    """Clique id alone: a decimal number."""
    DOMAIN_NAME = "domain-name"
    """NVLink domain by a name that says nothing else: any text; only read, never written."""
    RACK = "rack"
    """Rack: its name."""
    CHASSIS = "chassis"
    """Chassis: its serial number."""
    SLOT = "slot"
    """Slot in the rack, switch trays included: a decimal number."""
    TRAY = "tray"
    """Compute tray index: a decimal number."""
    RAILS_UP = "rails-up"
    """Rails that are up: a bit mask in hexadecimal, `0xf`."""
    DEGRADED_LINKS = "degraded-links"
    """Links known to be down or degraded: a decimal number."""
    DEGRADED_GPUS = "degraded-gpus"
    """GPUs known to be down, degraded, missing or short of NVLinks: a decimal number."""
    LEAF_OF_RAIL = "leaf-of-rail"
    """Leaf switch of one rail: its name."""
    TIER = "tier"
    """Switch or switch group at one tier of the network, 0 nearest the node: its name."""


class Write(StrEnum):
    """When a key is written."""

    ALWAYS = "always"
    ASKED = "asked"
    NEVER = "never"


OWN = "own"
"""The group of our own keys."""

_FAMILY = {Fact.LEAF_OF_RAIL: "{rail}", Fact.TIER: "{tier}"}


@dataclass(frozen=True, slots=True)
class LabelKey:
    """One row of the table. `stem` is the key, and where `family` the key up to its number (`leaf-rail-` of
    `leaf-rail-{rail}`). `number` is the tier of a key that stands for just one, None otherwise.
    """

    stem: str
    fact: Fact
    group: str
    write: Write
    meaning: str
    source: str
    family: bool = False
    number: int | None = None

    @property
    def shown(self) -> str:
        """The key as the table writes it."""
        return self.stem + (_FAMILY[self.fact] if self.family else "")


@dataclass(frozen=True, slots=True)
class KeyTable:
    """The table: the prefix of our own keys, and the rows in file order, ours first."""

    prefix: str
    keys: tuple[LabelKey, ...]
    _exact: dict[str, LabelKey] = field(init=False, repr=False, compare=False)
    _families: dict[str, LabelKey] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index by key and by the stem of a family."""
        object.__setattr__(self, "_exact", {key.stem: key for key in self.keys if not key.family})
        object.__setattr__(self, "_families", {key.stem: key for key in self.keys if key.family})

    def meaning(self, key: str) -> tuple[LabelKey, int | None] | None:
        """The row that a label's key falls under, with its rail or tier where it has one; None for a key of no row."""
        row = self._exact.get(key)
        if row is not None:
            return row, row.number
        stem = key.rstrip("0123456789")
        digits = key[len(stem) :]
        row = self._families.get(stem)
        if row is None or not 0 < len(digits) <= 4 or not digits.isascii():
            return None
        return row, int(digits)

    def groups(self) -> tuple[str, ...]:
        """The groups that can be asked for: those with a key that is written only when asked."""
        return tuple(dict.fromkeys(key.group for key in self.keys if key.write is Write.ASKED))

    def written(self, asked: Collection[str] = ()) -> tuple[LabelKey, ...]:
        """The rows that a plan writes. UsageError for a group that can't be asked for."""
        for group in asked:
            if group not in self.groups():
                owned = any(key.group == group for key in self.keys)
                why = "another component writes these keys; we only read them" if owned else None
                fix = f"the groups that can be asked for are {', '.join(self.groups()) or 'none in this table'}"
                raise UsageError(f"labels of {group!r} can't be written", why=why, fix=fix)
        chosen = set(asked)
        return tuple(
            key for key in self.keys if key.write is Write.ALWAYS or (key.write is Write.ASKED and key.group in chosen)
        )

    def owns(self, key: str) -> bool:
        """Whether a label's key carries our own prefix."""
        return key.startswith(f"{self.prefix}/")


@cache
def shipped() -> KeyTable:
    """The table that comes with Rackyard."""
    name = "labelkeys.toml"
    text = files("rackyard.fabric").joinpath(name).read_text(encoding="utf-8")
    return load(text, name, KeyTable("", ()))


def load(text: str, file: str = "<label keys>", base: KeyTable | None = None) -> KeyTable:
    """The table that `text` describes, laid over `base` (the shipped one). SpecError with file, line and column."""
    if len(text) > MAX_CHARS:
        raise SpecError("too long for a table of label keys", where=Where(file), why=f"over {MAX_CHARS} characters")
    try:
        top = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise _broken(error, text, file) from None
    read = _Reader(file, text)
    read.known(top, ("extends", "prefix", OWN, "alias"), None)
    extends = top.get("extends", True)
    if not isinstance(extends, bool):
        read.fail("extends: true or false is wanted", "extends")
    below = (shipped() if base is None else base) if extends else KeyTable("", ())
    prefix = read.prefix(top, below.prefix)
    rows = [_moved(key, below.prefix, prefix) for key in below.keys]
    found = [read.row(entry, OWN, at, prefix) for at, entry in enumerate(read.entries(top, OWN))]
    found += [read.row(entry, "alias", at, prefix) for at, entry in enumerate(read.entries(top, "alias"))]
    mine = {key.shown: key for key in found}
    rows = [mine.pop(key.shown, key) for key in rows] + list(mine.values())
    return KeyTable(prefix, tuple(sorted(rows, key=lambda key: key.group != OWN)))


def _moved(key: LabelKey, old: str, new: str) -> LabelKey:
    if key.group != OWN or old == new:
        return key
    stem = new + key.stem.removeprefix(old)
    return LabelKey(stem, key.fact, OWN, key.write, key.meaning, key.source, key.family, key.number)


def _broken(error: Exception, text: str, file: str) -> SpecError:
    """tomllib says the place in its message only, and of an end that came too soon not even that."""
    found = re.search(r"\(at line (\d+), column (\d+)\)", str(error))
    last = Where(file, text.count("\n") + 1, len(text.rpartition("\n")[2]) + 1)
    where = Where(file, int(found[1]), int(found[2])) if found else last
    why = (str(error)[: found.start()] if found else str(error))[:200].strip()
    return SpecError(
        "not TOML", where=where, why=why, fix="the form is explained at the top of the shipped labelkeys.toml"
    )


_HEADER = re.compile(r"\s*\[\[\s*([A-Za-z0-9_-]+)\s*\]\]")
_ENTRY = re.compile(r"(\s*)(?:([A-Za-z0-9_-]+)|\"([^\"]*)\"|'([^']*)')\s*=")


def _places(text: str) -> dict[str, tuple[int, int]]:
    """Line and column, from 1, of each `[[table]]` (as `own.0`) and of each entry in it (as `own.0.fact`), which
    tomllib does not tell. Only called for text that tomllib has accepted.
    """
    found: dict[str, tuple[int, int]] = {}
    counts: dict[str, int] = {}
    table, quote = "", ""
    for number, line in enumerate(text.split("\n"), 1):
        if not quote:
            if header := _HEADER.match(line):
                at = counts.get(header[1], 0)
                counts[header[1]] = at + 1
                table = f"{header[1]}.{at}"
                found[table] = (number, line.index("[") + 1)
            elif entry := _ENTRY.match(line):
                name = entry[2] or entry[3] or entry[4] or ""
                found.setdefault(f"{table}.{name}" if table else name, (number, len(entry[1]) + 1))
        for mark in ('"""', "'''"):
            if quote in ("", mark) and line.count(mark) % 2:
                quote = "" if quote else mark
    return found


class _Reader:
    """Checks one document. `at` in a place is `own.0.fact`: the row's table, its number from 0, the field."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.places = _places(text)
        self.lines: dict[str, int] = {}

    def place(self, at: str) -> tuple[int, int]:
        """Line and column of a path, or of the nearest thing above it that has a place."""
        while at not in self.places and "." in at:
            at = at.rpartition(".")[0]
        return self.places.get(at, (1, 1))

    def fail(self, what: str, at: str, *, fix: str | None = None, why: str | None = None) -> NoReturn:
        """Complain about the value at a path."""
        line, column = self.place(at)
        raise SpecError(what, where=Where(self.file, line, column), why=why, fix=fix)

    def known(self, table: dict[str, Any], names: Collection[str], at: str | None) -> None:
        for name in table:
            if name not in names:
                path = name if at is None else f"{at}.{name}"
                self.fail(f"unknown key {name[:60]!r}", path, fix=did_you_mean(name, names))

    def prefix(self, top: dict[str, Any], below: str) -> str:
        prefix = top.get("prefix", below)
        if not isinstance(prefix, str) or len(prefix) > 253 or not _DNS.fullmatch(prefix):
            self.fail("prefix: a DNS subdomain is wanted, such as example.com", "prefix")
        if any(prefix == name or prefix.endswith(f".{name}") for name in _RESERVED):
            self.fail(f"prefix: {prefix} is reserved", "prefix", why="Kubernetes keeps it for its own components")
        return prefix

    def entries(self, top: dict[str, Any], table: str) -> list[dict[str, Any]]:
        entries = top.get(table, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self.fail(f"{table}: a list of tables is wanted", table, fix=f"begin each with [[{table}]]")
        return entries

    def row(self, entry: dict[str, Any], table: str, number: int, prefix: str) -> LabelKey:
        at = f"{table}.{number}"
        named = "name" if table == OWN else "key"
        self.known(
            entry, (named, "fact", "tier", "write", "meaning", "source", *(() if table == OWN else ("group",))), at
        )
        name = self.text(entry, named, at)
        fact = Fact(self.choice(entry, "fact", at, [each.value for each in Fact]))
        write = Write(self.choice(entry, "write", at, [each.value for each in Write]))
        group = OWN if table == OWN else self.text(entry, "group", at)
        if table != OWN and group == OWN:
            self.fail("group: own is for [[own]]", f"{at}.group")
        if fact is Fact.DOMAIN_NAME and write is not Write.NEVER:
            self.fail("write: domain-name is only read", f"{at}.write", fix='write = "never"')
        stem, family, tier = self.stem(f"{prefix}/{name}" if table == OWN else name, fact, entry, at, named)
        meaning, source = self.text(entry, "meaning", at), self.text(entry, "source", at)
        key = LabelKey(stem, fact, group, write, meaning, source, family, tier)
        line = self.place(f"{at}.{named}")[0]
        if key.shown in self.lines:
            self.fail(
                f"{key.shown} is given twice", f"{at}.{named}", fix=f"the first is in line {self.lines[key.shown]}"
            )
        self.lines[key.shown] = line
        return key

    def stem(self, key: str, fact: Fact, entry: dict[str, Any], at: str, named: str) -> tuple[str, bool, int | None]:
        holder = _FAMILY.get(fact, "\0")
        family = key.endswith(holder)
        stem = key.removesuffix(holder) if family else key
        self.valid(f"{stem}0" if family else stem, f"{at}.{named}")
        tier = entry.get("tier")
        if fact is Fact.TIER and not family:
            if type(tier) is not int or not 0 <= tier < 100:
                self.fail("tier: a number from 0 is wanted", f"{at}.tier", fix="or end the key with {tier}")
            return stem, False, tier
        if tier is not None:
            self.fail("tier: only for a key that stands for one tier", f"{at}.tier")
        if fact is Fact.LEAF_OF_RAIL and not family:
            self.fail(f"{named}: must end with {{rail}}", f"{at}.{named}", why="there is one leaf for each rail")
        if family and stem[-1:].isdigit():
            self.fail(
                f"{named}: a digit right before {holder}", f"{at}.{named}", why="the number could not be told apart"
            )
        return stem, family, None

    def valid(self, key: str, at: str) -> None:
        """Kubernetes' rule for a qualified name: a DNS subdomain and `/`, or neither; then at most 63 characters."""
        prefix, slash, name = key.rpartition("/")
        if slash and (len(prefix) > 253 or not _DNS.fullmatch(prefix)):
            self.fail(f"{key[:80]!r} is no label key", at, why="what stands before the / must be a DNS subdomain")
        if len(name) > 63 or not _NAME.fullmatch(name):
            why = "a name has 1 to 63 letters, digits, '-', '_', '.', and begins and ends with a letter or digit"
            self.fail(f"{key[:80]!r} is no label key", at, why=why)

    def text(self, entry: dict[str, Any], name: str, at: str) -> str:
        if name not in entry:
            self.fail(f"{name!r} is missing", at)
        value = entry[name]
        if not isinstance(value, str) or not value.strip() or len(value) > 1000:
            self.fail(f"{name}: a text is wanted", f"{at}.{name}")
        return value

    def choice(self, entry: dict[str, Any], name: str, at: str, choices: list[str]) -> str:
        value = self.text(entry, name, at)
        if value not in choices:
            self.fail(
                f"{name}: {value[:60]!r} is none of {', '.join(choices)}",
                f"{at}.{name}",
                fix=did_you_mean(value, choices),
            )
        return value
