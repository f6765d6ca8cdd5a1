"""Elements and attributes that NCCL skips: misspelt, misplaced, or not its own."""

import difflib
import re
from collections.abc import Iterator

from rackyard.findings import Severity
from rackyard.nccl.lintcontext import Context, Problem, Rule, shown
from rackyard.nccl.lintshape import KNOWN_ATTRIBUTES
from rackyard.nccl.xmlread import KNOWN
from rackyard.nccl.xmlrefused import printable
from rackyard.nccl.xmltoken import Note

_PARENTS = {
    child: ", ".join(f"<{parent}>" for parent, children in KNOWN.items() if child in children and parent)
    for child in sorted({child for children in KNOWN.values() for child in children})
}
_SKIPPED = re.compile(r"<([^>]*)> (in <[^>]*>|as the root)")
_ADVICE = {
    "extra-attribute": "drop attributes that NCCL does not read",
    "duplicate-attribute": "write it once",
    "no-value": 'write name="value"',
    "nul": "take the NUL byte out",
    "entity": "write the character itself; names and bus ids need none",
}


def skipped(note: Note) -> tuple[str, Problem]:
    """The rule and the problem of something that NCCL dropped while it read the file."""
    found = _SKIPPED.match(note.text)
    if note.rule != "unknown-element" or not found:
        severity = Severity.INFO if note.rule == "entity" else Severity.WARNING
        return note.rule, Problem(severity, note.line, "attribute", note.text, _ADVICE.get(note.rule, "take it out"))
    name, place = found.groups()
    subject, parent = printable(name, 40), place.removeprefix("in <").removesuffix(">")
    if name in KNOWN.get(parent, ()):
        advice = "nothing to write: newer versions of NCCL read it"
        return "newer-element", Problem(Severity.INFO, note.line, subject, note.text, advice)
    rule = "misplaced" if name in _PARENTS else note.rule
    return rule, Problem(Severity.WARNING, note.line, subject, note.text, _element_advice(name, parent))


def _element_advice(name: str, parent: str) -> str:
    if name == "graphs":
        return "this is a graph file: it belongs into NCCL_GRAPH_FILE"
    if name == "system":
        return "write one <system>, as the root"
    if name in _PARENTS:
        return f"<{name}> belongs into {_PARENTS[name]}"
    if parent == "as the root":
        return 'the root is <system version="1">; with another one NCCL ignores the whole file'
    close = difflib.get_close_matches(name.lower(), [*KNOWN.get(parent, ()), *_PARENTS], n=1, cutoff=0.7)
    return f"did you mean <{close[0]}>?" if close else "drop it: it has no effect"


def unknown_attributes(ctx: Context) -> Iterator[Problem]:
    """Attributes that NCCL does not read; a warning where one that it reads is meant."""
    told: set[tuple[str, str]] = set()
    for element in ctx.root.walk():
        known = KNOWN_ATTRIBUTES[element.name]
        for key in element.attrs:
            if not key or key in known or key == "keep" or (element.name, key) in told:
                continue
            told.add((element.name, key))
            close = difflib.get_close_matches(key.lower(), [each for each in known if each not in element.attrs], n=1)
            what = f"NCCL does not read {shown(key)} of <{element.name}>"
            if close:
                yield ctx.warn(element, what, f"did you mean {close[0]}?")
            else:
                yield ctx.info(element, what, "drop it: it takes one of 16 places")


RULES: tuple[tuple[str, Rule], ...] = (("unknown-attribute", unknown_attributes),)
