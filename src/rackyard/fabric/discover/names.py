"""Which names mean the same host: captures, cables and schedulers spell them with and without the DNS domain."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

NAMELESS = frozenset({"", "localhost", "ubuntu", "(none)", "localhost.localdomain"})
"""Host names that an installer leaves behind. Two of them are never the same host."""


class HostNames:
    """Maps every spelling to one name: the short one, with its case as first seen. Hosts of different DNS domains that
    share the short name keep their full names.
    """

    def __init__(self) -> None:
        self._spellings: dict[str, dict[str, None]] = {}
        self._known: dict[str, str] = {}

    def learn(self, names: Iterable[str]) -> None:
        """Take in names, in reading order."""
        for name in dict.fromkeys(names):
            if name not in self._known:
                spellings = self._spellings.setdefault(_key(name), {})
                spellings[name] = None
                self._known |= _resolved(_key(name), spellings)

    @property
    def differ(self) -> bool:
        """Whether any host goes by another name than it was read under."""
        return any(name != known for name, known in self._known.items())

    def __call__(self, name: str) -> str:
        """The one name of a host."""
        return self._known.get(name, name)


def _resolved(key: str, spellings: Mapping[str, None]) -> dict[str, str]:
    """The name of each spelling of one short name."""
    full = {name.lower() for name in spellings if len(name) > len(key)}
    if len(full) > 1:
        return {name: name for name in spellings}
    short = next((name for name in spellings if len(name) == len(key)), next(iter(spellings))[: len(key)])
    return dict.fromkeys(spellings, short)


def _key(name: str) -> str:
    short = name.split(".", 1)[0]
    # 10.0.0.7 is an address, and its parts are not a domain
    return name.lower() if not short or short.isdecimal() else short.lower()


@lru_cache(maxsize=65_536)
def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that puts `c2` before `c10`."""
    parts: list[tuple[int, int, str]] = []
    at = 0
    while at < len(text):
        end = at
        digits = text[at] in _DIGITS
        while end < len(text) and (text[end] in _DIGITS) == digits:
            end += 1
        part = text[at:end]
        parts.append((0, int(part), part) if digits and len(part) < 20 else (1, 0, part))
        at = end
    return tuple(parts)


_DIGITS = frozenset("0123456789")
