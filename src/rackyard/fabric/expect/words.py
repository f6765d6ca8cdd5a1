"""How findings list names."""

from collections.abc import Iterable


def listed(names: Iterable[str], most: int = 6) -> str:
    """`a, b, c and 4 more`, in order, each once."""
    ordered = sorted(set(names))
    more = len(ordered) - most
    return ", ".join(ordered[:most]) + (f" and {more} more" if more > 0 else "")
