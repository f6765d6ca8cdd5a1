"""Numbers as C reads them: blanks first, sign, digits, and whatever follows is ignored. No digits is 0.

NCCL reads its attributes with strtol (base 0 or 16), strtoull and strtof and looks at no error, so a word is 0.
"""

import math
import re
import struct

_BLANK = " \t\n\v\f\r"
_LONG_MAX = 2**63 - 1
_ULONG_MAX = 2**64 - 1
_DIGITS = "0123456789abcdef"
_FLOAT = re.compile(
    r"[+-]?(?:0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?\d+)?|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan)",
    re.IGNORECASE | re.ASCII,
)


def _integer(text: str, base: int) -> int:
    """The number that the text starts with, unbounded."""
    rest = text.split("\0", 1)[0].lstrip(_BLANK).lower()
    negative = rest.startswith("-")
    rest = rest[1:] if rest[:1] in ("+", "-") else rest
    if base in (0, 16) and rest.startswith("0x") and len(rest) > 2 and rest[2] in _DIGITS:
        rest, base = rest[2:], 16
    if base == 0:
        base = 8 if rest.startswith("0") else 10
    count = 0
    while count < len(rest) and rest[count] in _DIGITS[:base]:
        count += 1
    # Past 22 octal digits every number is out of range: cut, because int() of a very long text is slow or refused.
    digits = rest[:count].lstrip("0")[:64]
    number = int(digits, base) if digits else 0
    return -number if negative else number


def c_long(text: str, base: int = 0) -> int:
    """strtol: 64-bit signed, pinned at its ends. Base 0 knows `0x` and a leading 0 as octal."""
    return max(-_LONG_MAX - 1, min(_LONG_MAX, _integer(text, base)))


def c_int(text: str, base: int = 0) -> int:
    """strtol stored in an int: the low 32 bits, signed."""
    return wrap_int(c_long(text, base))


def c_unsigned_long(text: str, base: int = 0) -> int:
    """strtoull: 64-bit unsigned; a minus sign wraps around, too much is 2**64 - 1."""
    number = _integer(text, base)
    return _ULONG_MAX if abs(number) > _ULONG_MAX else number & _ULONG_MAX


def c_float(text: str) -> float:
    """strtof: the nearest 32-bit float, as a Python float."""
    found = _FLOAT.match(text.split("\0", 1)[0].lstrip(_BLANK))
    if not found:
        return 0.0
    word = found.group().lower()
    if "n" in word.removeprefix("-").removeprefix("+")[:3]:
        return float(word)
    try:
        number = float.fromhex(word) if "0x" in word else float(word)
    except OverflowError:
        number = math.inf if word[0] != "-" else -math.inf
    return as_float(number)


def as_float(number: float) -> float:
    """A number rounded to a 32-bit float; too much is infinite."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return rounded


def wrap_int(number: int) -> int:
    """The low 32 bits of a number, signed."""
    return (number + 2**31) % 2**32 - 2**31
