"""A site drawn in text for a terminal of 80 columns: racks with their trays, and the rail matrix."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackyard.fabric.model import Health, Nic, Node, Rack, Site
from rackyard.fabric.railmatrix import Cell, rail_matrix

COLUMNS = 80


@dataclass(frozen=True, slots=True)
class Marks:
    """The signs for health, a cordon, an uplink, and nothing."""

    healthy: str
    degraded: str
    down: str
    unknown: str
    cordoned: str
    up: str
    none: str

    def of(self, health: Health) -> str:
        """The sign of a health."""
        return {
            Health.HEALTHY: self.healthy,
            Health.DEGRADED: self.degraded,
            Health.DOWN: self.down,
            Health.UNKNOWN: self.unknown,
        }[health]

    def legend(self) -> str:
        """What the signs mean."""
        return (
            f"{self.healthy} healthy  {self.degraded} degraded  {self.down} down  {self.unknown} unknown"
            f"  {self.cordoned} cordoned  {self.none} nothing there"
        )


SIGNS = Marks("●", "◐", "✕", "○", "c", "↑", "·")
ASCII = Marks("o", "!", "x", "?", "c", "^", ".")


def racks(site: Site, marks: Marks = SIGNS) -> list[str]:
    """Racks side by side, top slot first: a tray is a row of GPU signs, and the node's own sign when it is not well."""
    in_rack: dict[str, list[Node]] = defaultdict(list)
    for node in site.nodes:
        in_rack[node.rack].append(node)
    nodes = {rack.name: _places(in_rack[rack.name]) for rack in site.racks}
    cells = [max((len(node.gpus) for node in nodes[rack.name].values()), default=4) + 2 for rack in site.racks]
    widths = [
        max(cell, len(rack.name), len(rack.switch_trays)) + 2 for rack, cell in zip(site.racks, cells, strict=True)
    ]
    lines: list[str] = []
    for band in _bands(site.racks, widths):
        lines += ["", *_band([(site.racks[at], widths[at]) for at in band], nodes, marks)]
    return [*lines[1:], "", "each tray: one sign a GPU, then the tray's own", marks.legend()]


def _places(nodes: Sequence[Node]) -> dict[int, Node]:
    """Nodes by slot; those whose slot nobody gave by their leaf port, else from the bottom up where there is room."""
    found: dict[int, Node] = {}
    loose = []
    for node in nodes:
        ports = {nic.leaf_port for nic in node.nics}
        port = ports.pop() if node.slot < 0 and len(ports) == 1 else ""
        place = int(port) if port.isdecimal() and len(port) < 4 else node.slot
        if place >= 0 and place not in found:
            found[place] = node
        else:
            loose.append(node)
    free = (place for place in range(1, len(nodes) + len(found) + 1) if place not in found)
    return found | {next(free): node for node in loose}


def _bands(items: Sequence[Rack], widths: Sequence[int]) -> Iterable[list[int]]:
    """As many racks beside each other as fit."""
    band: list[int] = []
    used = 13
    for at, width in enumerate(widths):
        if band and used + width > COLUMNS:
            yield band
            band, used = [], 13
        band.append(at)
        used += width
    if items:
        yield band


def _band(band: Sequence[tuple[Rack, int]], nodes: dict[str, dict[int, Node]], marks: Marks) -> list[str]:
    slots = sorted({slot for rack, _ in band for slot in nodes[rack.name]}, reverse=True)
    rows = [("slot", [rack.name for rack, _ in band])]
    rows += [(str(slot), [_tray(nodes[rack.name].get(slot), marks) for rack, _ in band]) for slot in slots]
    if any(rack.switch_trays for rack, _ in band):
        trays = ["".join(marks.of(tray.health) for tray in rack.switch_trays) or marks.none for rack, _ in band]
        rows.append(("switch trays", trays))
    rows.append(("NVLink", [_nvlink(rack) for rack, _ in band]))
    widths = [width for _, width in band]
    return [
        f"{title:>12} " + "".join(f" {cell:<{width - 1}}" for cell, width in zip(cells, widths, strict=True)).rstrip()
        for title, cells in rows
    ]


def _nvlink(rack: Rack) -> str:
    """The health of the rack's NVLink; `none` where its machines are known to share none."""
    return "none" if rack.domain is None and rack.nvlink is Health.HEALTHY else rack.nvlink.value


def _tray(node: Node | None, marks: Marks) -> str:
    if node is None:
        return marks.none
    gpus = "".join(marks.of(gpu.health) for gpu in node.gpus)
    own = marks.cordoned if node.cordoned else "" if node.health is Health.HEALTHY else marks.of(node.health)
    return f"{gpus} {own}".strip()


def rails(site: Site, marks: Marks = SIGNS) -> list[str]:
    """The rail matrix: for each rack and rail how many NICs are up of those on the leaf, and the leaf's uplinks."""
    matrix = rail_matrix(site)
    name_width = max([4, *(len(rack) for rack in matrix.rows)])
    width = max(8, min(12, (COLUMNS - name_width - 2) // max(len(matrix.rails), 1)))
    title = "".join(f"{_rail(rail):<{width}}" for rail in matrix.rails)
    lines = [f"{'rack':<{name_width}}  {title}".rstrip()]
    for rack, leaves in matrix.rows.items():
        cells = [_cells(leaves.get(rail, ()), marks) for rail in matrix.rails]
        lines.append(f"{rack:<{name_width}}  " + "".join(f"{cell:<{width}}" for cell in cells).rstrip())
    usual = f"; ! less than {matrix.usual}, the usual number of uplinks" if matrix.usual else ""
    return [*lines, "", f"NICs up / on the leaf {marks.up} uplinks{usual}", f"{marks.none} no leaf on that rail"]


def _rail(rail: int) -> str:
    return "mixed" if rail < 0 else f"rail {rail}"


def _cells(cells: Iterable[Cell], marks: Marks) -> str:
    words = []
    for cell in cells:
        count = str(cell.up) if cell.up == cell.nics else f"{cell.up}/{cell.nics}"
        words.append(f"{count}{marks.up}{cell.uplinks}{'!' if cell.short else ''}")
    return " ".join(words) or marks.none


def rack(site: Site, name: str, marks: Marks = SIGNS) -> list[str]:
    """One rack in full: each tray with its GPUs' links, and for each rail the leaf port. KeyError for no such rack."""
    found = site.rack(name)
    places = sorted(_places(site.nodes_in_rack(name)).items(), reverse=True)
    nodes = [node for _, node in places]
    numbers = sorted({nic.rail for node in nodes for nic in node.nics})
    home = {leaf.rail: leaf.name for leaf in site.leaves if leaf.rack == name}
    rows = [["slot", "tray", "GPUs", "NVLinks", *(_rail(rail) for rail in numbers)]]
    for place, node in places:
        links = sorted({gpu.nvlinks for gpu in node.gpus})
        cells = [_nics([nic for nic in node.nics if nic.rail == rail], home.get(rail, ""), marks) for rail in numbers]
        rows.append([str(place), _short(node.name), _tray(node, marks), _links(links), *cells])
    for tray in sorted(found.switch_trays, key=lambda tray: -tray.slot):
        rows.append([f"s{tray.slot}", tray.name, marks.of(tray.health) * tray.asics, "", *("" for _ in numbers)])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()[:COLUMNS] for row in rows
    ]
    leaves = [f"rail {rail}: {leaf}" for rail, leaf in sorted(home.items())]
    return [
        f"rack {name}: NVLink {_nvlink(found)}, domain {found.domain or 'none'}",
        *(f"leaf of {line}" for line in leaves),
        "",
        *lines,
        "",
        "rail cells: the NIC's sign and its leaf port, or the name of another leaf",
        marks.legend(),
    ]


def _short(name: str) -> str:
    """At most 24 characters, both ends kept: made-up names are long."""
    return name if len(name) <= 24 else f"{name[:11]}…{name[-12:]}"


def _links(counts: Sequence[int]) -> str:
    return "/".join("?" if count < 0 else str(count) for count in counts) or "-"


def _nics(nics: Iterable[Nic], home: str, marks: Marks) -> str:
    cells = []
    for nic in nics:
        port = f" {nic.leaf_port}" if nic.leaf_port.isdecimal() else ""
        cells.append(marks.of(nic.health) + (port if nic.leaf == home else f" {nic.leaf or '?'}"))
    return ", ".join(cells) or marks.none
