"""The reference page of the rules of `rackyard nccl topo lint`, made from the rules themselves.

`python -m rackyard.nccl.rulesdoc > docs/nccl-rules.md` writes the page; a test compares it with the file.
"""

import inspect
import sys

from rackyard.nccl.lint import RULES

_INTRO = """\
# Rules for NCCL topology files

<!-- Made by `python -m rackyard.nccl.rulesdoc`. Don't edit: `make docs` writes it, a test compares it. -->

What `rackyard nccl topo lint --nccl VERSION FILE…` says; every finding names the line and what to write instead. An
**error** ends communicator init, or makes the job not worth running. A **warning** is what NCCL ignores or misreads
without a word. An **info** is worth knowing. One rule may say any of them: which one, the case and the version decide.

## Where NCCL's reader stops

Always an error: init fails (in a few cases NCCL crashes, and the finding says so). After each of these, lint repairs
the text in memory where it can be told what was meant, and reads on; else `not-checked` (UNKNOWN) says that the rest
was not looked at.

"""

STOPS: dict[str, str] = {
    "byte-order-mark": "The file begins with a byte order mark.",
    "prolog": "An XML declaration, `<?xml …?>`.",
    "doctype": "A DOCTYPE.",
    "cdata": "A CDATA section.",
    "tab": "A tab, between tags or between attributes.",
    "line-break-in-tag": "A tag that goes on in the next line.",
    "closing-tag": "A closing tag that does not match, or one after the root.",
    "not-closed": "An element that is never closed.",
    "cut-off": "The file ends in the middle.",
    "comment": "A comment that is never closed.",
    "equals-sign": "An equals sign where NCCL expects none, also in the first word of a comment.",
    "no-quote": "An attribute's value without a quote.",
    "version": "No `version` on `<system>`, or another number than 1.",
    "too-long": "A name over 254 bytes, or a value over 253.",
    "text": "Text between tags.",
    "node-limit": "More elements than NCCL has room for (255 from 2.21 on, 1,023 before).",
    "syntax": "Anything else that is no tag.",
}
"""What lint calls the spots where the reader stops, and what they are."""

SKIPS: dict[str, str] = {
    "unknown-element": "An element that NCCL does not know, with everything in it.",
    "misplaced": "An element that NCCL knows, where it does not look for it.",
    "newer-element": "An element that only newer versions read.",
    "extra-attribute": "The 17th attribute of an element, and those after it.",
    "duplicate-attribute": "An attribute given twice: the first counts.",
    "no-value": "An attribute without a value: it is kept, empty.",
    "nul": "A NUL byte: the value ends there.",
    "entity": "An entity such as `&amp;`: it is kept as it stands.",
    "no-system": "No `<system>` as the root: NCCL goes on as if there were no file.",
    "second-system": "A second `<system>`: read, and not used.",
    "skipped": "How many more of these there are.",
}
"""What lint calls what NCCL passes over while it reads."""


def render() -> str:
    """The page in Markdown."""
    rules = {name: (inspect.getdoc(rule) or "").replace("\n", " ") for name, rule in RULES}
    parts = [
        _INTRO + _table(STOPS),
        "## What NCCL passes over without a word\n\n" + _table(SKIPS),
        "## What the tree says\n\n" + _table(rules),
    ]
    return "\n".join(parts)


def _table(rows: dict[str, str]) -> str:
    lines = ["| rule | what it is about |", "|---|---|"]
    lines += [f"| `nccl-xml/{name}` | {about.replace('|', chr(92) + '|')} |" for name, about in rows.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(render())
