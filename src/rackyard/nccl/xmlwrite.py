"""Writes a tree as a topology file that NCCL reads: one tag a line, two blanks a level, double quotes."""

from rackyard.errors import UsageError
from rackyard.nccl.element import Element
from rackyard.nccl.xmlrefused import printable

LONGEST_VALUE = 253
"""Bytes of an attribute's value that every NCCL reads."""
_LONGEST_NAME = 253
_NO_NAME = frozenset("= <>/\"'\n\r\t\0")


def write(root: Element) -> str:
    """The file's text. Raises UsageError for a name or value that NCCL would not read back as it is."""
    lines: list[str] = []
    waiting: list[tuple[Element | None, str]] = [(root, "")]
    while waiting:
        element, before = waiting.pop()
        if element is None:
            lines.append(before)
            continue
        tag = _tag(element)
        if not element.children:
            lines.append(f"{before}<{tag}/>")
            continue
        lines.append(f"{before}<{tag}>")
        waiting.append((None, f"{before}</{element.name}>"))
        waiting.extend((child, before + "  ") for child in reversed(element.children))
    return "\n".join(lines) + "\n"


def _tag(element: Element) -> str:
    words = [_name(element.name)]
    words += [f'{_name(key)}="{_value(key, value)}"' for key, value in element.attrs.items() if key]
    return " ".join(words)


def _name(name: str) -> str:
    if not name or len(name) > _LONGEST_NAME or _NO_NAME & set(name):
        raise UsageError(f"'{printable(name)}' is no name for NCCL", fix="use letters, digits and _")
    return name


def _value(key: str, value: str) -> str:
    if len(value.encode("utf-8", "surrogatepass")) > LONGEST_VALUE or '"' in value or "\0" in value:
        why = f'NCCL reads at most {LONGEST_VALUE} bytes, without " and NUL'
        raise UsageError(f"the value of {key} can't be written: {printable(value)}", why=why)
    return value
