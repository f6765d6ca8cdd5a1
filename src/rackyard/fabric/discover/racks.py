"""Which rack a node stands in. Whoever knows best is asked first; a name alone never puts a node anywhere."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from rackyard.fabric.discover.cabling import Cabling, HostPort
from rackyard.fabric.discover.names import natural
from rackyard.fabric.discover.nodes import Parts, Place
from rackyard.fabric.discover.rails import Rails
from rackyard.fabric.model import UNPLACED, DomainKey

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
    places = _beside_peers(places, parts, rails)
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


def _beside_peers(places: Mapping[str, Place], parts: Mapping[str, Parts], rails: Rails) -> dict[str, Place]:
    """Nodes that nobody captured, and whose place follows from domain or leaves only, stand where the others of the
    same domain, else of the same leaves, are known to stand.
    """
    by_domain: dict[DomainKey, Counter[Place]] = defaultdict(Counter)
    by_leaves: dict[int, Counter[Place]] = defaultdict(Counter)
    for node, place in places.items():
        if place[0] in ("named", "chassis") and place[1] != UNPLACED:
            if (key := parts[node].shared) is not None:
                by_domain[key][place] += 1
            if node in rails.home:
                by_leaves[rails.home[node]][place] += 1
    found = dict(places)
    for node, place in places.items():
        if place[0] in ("domain", "leaves"):
            key, home = parts[node].shared, rails.home.get(node, -1)
            told = by_domain.get(key) if key is not None else by_leaves.get(home)
            if told:
                found[node] = min(told, key=lambda known: (-told[known], known))
    return found


def titles(places: Mapping[str, Place]) -> dict[Place, str]:
    """A name for every place that has members. Racks that somebody named keep the name; the others are called by what
    their hosts' names have in common, where hardly any host elsewhere has that too, and else by their id.
    """
    prefixes: dict[Place, Counter[str]] = defaultdict(Counter)
    for node, place in places.items():
        match = _LAST_NUMBER.match(node) if place[0] != "named" else None
        prefixes[place][match[1] if match else ""] += 1
    best = {place: counted.most_common(1)[0] for place, counted in prefixes.items()}
    most: dict[str, list[tuple[int, Place]]] = defaultdict(list)
    for place, (prefix, count) in best.items():
        if prefix and 2 * count > prefixes[place].total():
            most[prefix].append((count, place))
    taken = {place[1] for place in prefixes if place[0] == "named"}
    named = {}
    for prefix, owners in most.items():
        owners.sort(reverse=True)
        # One tray with a wrong serial number must not take the name from its rack.
        if prefix not in taken and (len(owners) == 1 or owners[0][0] > 2 * owners[1][0]):
            named[owners[0][1]] = prefix
    return {place: named.get(place, place[1]) for place in best}
