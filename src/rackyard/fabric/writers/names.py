"""Names as a format can hold them: cleaned, short enough, and still one for each thing."""

import re
from collections.abc import Callable

from rackyard.errors import UsageError
from rackyard.fabric.discover.names import natural
from rackyard.fabric.labels import label_value
from rackyard.fabric.readers.hostlist import compress, writable
from rackyard.fabric.readers.slurm_topology import MAX_SWITCH_NAME

MAX_KUBERNETES = 63
"""Names are also used as label values, which hold 63 characters; a DNS subdomain would hold 253."""

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")  # RFC 1123
_NOT_SLURM = re.compile(r"[\s,\[\]{}()#\"'\\=]|[^\x21-\x7e]")


class Names:
    """Gives each thing its name: `clean` makes one that the format takes, and what is taken already gets a number."""

    def __init__(self, clean: Callable[[str], str]) -> None:
        self._clean = clean
        self._used: set[str] = set()

    def new(self, name: str, second: str | None = None) -> str:
        """A name like `name` that was not given before; where that is taken, one like `second`."""
        wanted, number = self._clean(name), 1
        if wanted in self._used and second is not None:
            wanted = self._clean(second)
        found = wanted
        while found in self._used:
            number += 1
            found = self._clean(f"{wanted}-{number}")
        self._used.add(found)
        return found


def kubernetes(name: str) -> str:
    """`name` as an RFC 1123 subdomain of at most 63 characters. What is longer is hashed, as topograph does with
    label values.
    """
    low = re.sub(r"[^a-z0-9.-]", "-", name.lower())
    parts = [part.strip("-") for part in low.split(".")]
    found = ".".join(part for part in parts if part)
    if not found:
        return label_value(name + "\0")
    return found if len(found) <= MAX_KUBERNETES else label_value(found)


def slurm(name: str) -> str:
    """`name` as Slurm takes one: no more than 64 characters, none that a hostlist or a `Key=value` line gives a
    meaning.
    """
    found = _NOT_SLURM.sub("_", name) or "_"
    return found if len(found) <= MAX_SWITCH_NAME else label_value(found)


def hostlist(names: tuple[str, ...]) -> str:
    """Names as a hostlist, in their order. UsageError for one that Slurm could not read."""
    for name in names:
        if not writable(name):
            why = "Slurm would read it as a list"
            raise UsageError(f"the name {name[:80]!r} can't stand in a hostlist", why=why)
    return compress(names)


def node_list(nodes: tuple[str, ...]) -> str:
    """Node names as a hostlist. Slurm keeps them as a set, so they are sorted, for a list that is short and steady."""
    return hostlist(tuple(sorted(nodes, key=natural)))


def kubernetes_node(node: str) -> str:
    """The name under which the kubelet registers a node: its host name in lower case (kubernetes/pkg/util/node).
    UsageError for one that no Kubernetes node can have.
    """
    low = node.lower()
    if len(low) > 253 or not _SUBDOMAIN.fullmatch(low):
        raise UsageError(f"no Kubernetes node can be called {node[:80]!r}", why="a name is an RFC 1123 subdomain")
    return low
