"""Graphviz: racks as clusters of nodes, leaves and spines above them. `dot -Tsvg site.dot`, or `sfdp` for a large
site.
"""

from collections import defaultdict
from collections.abc import Iterator

from rackyard.fabric.model import Health, Node, Rack, Site

_FILL = {Health.HEALTHY: "#e3f1e5", Health.DEGRADED: "#fbe6bf", Health.DOWN: "#f4c7c3", Health.UNKNOWN: "#eceff1"}
_SWITCH = "#dbe6f4"


def write(site: Site) -> str:
    """The site as a graph: one edge for each pair of node and leaf, labelled with its rails, and one for each leaf
    and spine. An edge with a NIC on it that is not healthy is dashed. Node colours are health; a cordoned node has a
    dashed border.
    """
    lines = [f"graph {_text(site.name)} {{"]
    lines.append('  graph [rankdir=BT, ranksep=1.5, fontname="sans-serif"];')
    lines.append('  node [shape=box, style=filled, fontname="sans-serif"];')
    in_rack: dict[str, list[Node]] = defaultdict(list)
    for node in site.nodes:
        in_rack[node.rack].append(node)
    for number, rack in enumerate(site.racks):
        lines += _rack(number, rack, in_rack[rack.name])
    leaves = dict.fromkeys([leaf.name for leaf in site.leaves] + [nic.leaf for node in site.nodes for nic in node.nics])
    lines += [f"  {_id('leaf', name)} [label={_text(name)}, fillcolor={_text(_SWITCH)}];" for name in leaves if name]
    spines = dict.fromkeys(
        [spine.name for spine in site.spines] + [name for leaf in site.leaves for name in leaf.spines]
    )
    spines |= dict.fromkeys(name for spine in site.spines for name in spine.above)
    lines += [f"  {_id('spine', name)} [label={_text(name)}, fillcolor={_text(_SWITCH)}];" for name in spines]
    for node in site.nodes:
        lines += _cables(node)
    for leaf in site.leaves:
        lines += [f"  {_id('leaf', leaf.name)} -- {_id('spine', spine)};" for spine in leaf.spines]
    for spine in site.spines:
        lines += [f"  {_id('spine', spine.name)} -- {_id('spine', above)};" for above in spine.above]
    return "\n".join(lines) + "\n}\n"


def _rack(number: int, rack: Rack, nodes: list[Node]) -> Iterator[str]:
    yield f"  subgraph cluster_{number} {{"
    label = rack.name if rack.domain is None else f"{rack.name}\nNVLink domain {rack.domain}"
    yield f"    graph [label={_text(label)}, color={_text('#9aa5b1')}];"
    for node in nodes:
        style = ', style="filled,dashed"' if node.cordoned else ""
        yield f"    {_id('node', node.name)} [label={_text(node.name)}, fillcolor={_text(_FILL[node.health])}{style}];"
    for tray in rack.switch_trays:
        fill = _text(_FILL[tray.health])
        yield f"    {_id(f'tray {number}', tray.name)} [label={_text(tray.name)}, shape=component, fillcolor={fill}];"
    yield "  }"


def _cables(node: Node) -> Iterator[str]:
    rails: dict[str, list[str]] = defaultdict(list)
    broken: set[str] = set()
    for nic in node.nics:
        if nic.leaf:
            rails[nic.leaf].append("?" if nic.rail < 0 else str(nic.rail))
            if nic.health is not Health.HEALTHY:
                broken.add(nic.leaf)
    for leaf, numbers in rails.items():
        style = ", style=dashed" if leaf in broken else ""
        yield f"  {_id('node', node.name)} -- {_id('leaf', leaf)} [label={_text(','.join(numbers))}{style}];"


def _id(kind: str, name: str) -> str:
    """An id of its own for each kind of thing: a rack's leaf may be called as one of its nodes."""
    return _text(f"{kind} {name}")


def _text(text: str) -> str:
    """A quoted string of the DOT language, in which only the quote and the backslash mean something."""
    plain = text
    if not text.isprintable():
        # By their numbers: two names must not become one.
        plain = "".join(char if char.isprintable() or char == "\n" else f"<{ord(char):x}>" for char in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
