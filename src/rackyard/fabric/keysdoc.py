"""The reference page of node labels, made from the table that the product uses (`labelkeys.toml`).

`python -m rackyard.fabric.keysdoc > docs/label-keys.md` writes the page; a test compares it with the file.
"""

import sys
from collections.abc import Iterable, Iterator

from rackyard.fabric.labelkeys import LabelKey, Write, shipped

_INTRO = """\
# Label keys

<!-- Made by `python -m rackyard.fabric.keysdoc`. Don't edit: `make docs` writes it, a test compares it. -->

Every node label that Rackyard writes or reads, from `labelkeys.toml` of the package. `{rail}` and `{tier}` end a key
that comes once for each rail or tier; tier 0 is nearest the node. How labels are planned and written, and how to lay a
table of your own over this one: [labels](labels.md).
"""

_SECTIONS = (
    ("Ours", "In every plan.", Write.ALWAYS),
    (
        "Written when asked for",
        "`rackyard topo label --also GROUP` adds the keys of a group. Don't ask for a group whose own component runs in"
        " the cluster: two writers would undo each other's work.",
        Write.ASKED,
    ),
    ("Read only", "Another component owns these; no option writes them.", Write.NEVER),
)


def render() -> str:
    """The page in Markdown."""
    keys = shipped().keys
    parts = [_INTRO]
    for title, about, write in _SECTIONS:
        rows = _table([key for key in keys if key.write is write], write is Write.ALWAYS)
        parts.append(f"## {title}\n\n{about}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _table(keys: Iterable[LabelKey], own: bool) -> Iterator[str]:
    names = ("key", "meaning", "source") if own else ("key", "group", "says", "meaning", "source")
    yield "| " + " | ".join(names) + " |"
    yield "|" + "---|" * len(names)
    for key in keys:
        cells = [f"`{key.shown}`"]
        if not own:
            number = "" if key.number is None else f" {key.number}"
            cells += [key.group, f"{key.fact.value}{number}"]
        cells += [_escaped(key.meaning), _escaped(key.source)]
        yield "| " + " | ".join(cells) + " |"


def _escaped(text: str) -> str:
    """Text for a table of Markdown: `<ClusterUUID>` would be taken for HTML."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace(">", "&gt;")


if __name__ == "__main__":
    sys.stdout.write(render())
