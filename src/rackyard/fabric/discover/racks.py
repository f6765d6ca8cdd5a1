"""Which rack a node stands in. Whoever knows best is asked first; a name alone never puts a node anywhere."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from rackyard.fabric.discover.cabling import Cabling, HostPort
from rackyard.fabric.discover.names import natural
from rackyard.fabric.discover.nodes import Parts, Place
from rackyard.fabric.discover.rails import Rails
from rackyard.fabric.model import UNPLACED

_LAST_NUMBER = re.compile(r"^(.+?)[-_.]?[a-zA-Z]*\d+$")


def racks_of(parts: Mapping[str, Parts], wires: Cabling, rails: Rails) -> dict[str, str]:
    """The rack of every node, in site order: by rack, then by slot, else by leaf port, else by name."""
    first_leaf: dict[int, str] = {}
    for leaf in wires.leaves():
        first_leaf.setdefault(wires.group.get(leaf, -1), leaf)
    places: dict[str, Place] = {}
    for node, part in parts.items():
        home = rails.home.get(node)
        by_leaf = ("leaves", f"at-{first_leaf[home]}") if home is not None else ("named", UNPLACED)
        places[node] = part.place or by_leaf
    names = titles(places)

    def order(node: str) -> tuple[object, ...]:
        slot = parts[node].slot
        port = _leaf_port(rails.hosts.get(node, ())) if slot is None else slot
        return natural(names[places[node]]), 9999 if port is None else port, natural(node)

    return {node: names[places[node]] for node in sorted(parts, key=order)}


def _leaf_port(ports: Sequence[HostPort]) -> int | None:
    """The number of the leaf port, where a node has the same on all of its leaves."""
    numbers = {port.leaf_port for port in ports}
    number = numbers.pop() if len(numbers) == 1 else ""
    return int(number) if number.isdecimal() and len(number) < 5 else None


def titles(places: Mapping[str, Place]) -> dict[Place, str]:
    """A name for every place that has members. Racks that somebody named keep the name; the others are called by what
    their hosts' names have in common, where no other place has that in common too, and else by their id.
    """
    prefixes: dict[Place, Counter[str]] = defaultdict(Counter)
    for node, place in places.items():
        match = _LAST_NUMBER.match(node) if place[0] != "named" else None
        prefixes[place][match[1] if match else ""] += 1
    best = {place: counted.most_common(1)[0] for place, counted in prefixes.items()}
    uses = Counter(prefix for prefix, _ in best.values())
    taken = {place[1] for place in prefixes if place[0] == "named"}
    return {
        place: prefix
        if prefix and uses[prefix] == 1 and 2 * count > prefixes[place].total() and prefix not in taken
        else place[1]
        for place, (prefix, count) in best.items()
    }
