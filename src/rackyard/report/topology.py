"""A site as a picture: racks with trays, GPUs, NICs and switch trays, and the rail matrix. Pure: markup from a Site."""

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from importlib.resources import files

import jinja2

from rackyard.fabric import Health, Node, Rack, Site
from rackyard.fabric.railmatrix import Cell, rail_matrix
from rackyard.findings import Finding, Severity, Verdict

_RACK, _ROW, _ACROSS = 150, 16, 6
_STYLE = """text{font:11px system-ui,sans-serif;fill:#1d2530}text.soft{fill:#68727f}
.frame{fill:none;stroke:#97a1ad}.frame.off{stroke:#d64545;stroke-width:3}.tray{fill:#e9ecef}
.tray.degraded{fill:#fbf1d0}.tray.down{fill:#f2b8b8}.tray.unknown{fill:#f4f5f6}.cordoned{stroke:#7b61c9;stroke-width:2}
.healthy{fill:#3d9970}.degraded{fill:#e6b93d}.down{fill:#d64545}.unknown{fill:#b9c0c8}"""


def svg(site: Site) -> str:
    """A stand-alone SVG of the whole site, racks six abreast in site order."""
    nodes: dict[str, list[Node]] = defaultdict(list)
    for node in site.nodes:
        nodes[node.rack].append(node)
    shown = [rack for rack in site.racks if nodes[rack.name] or rack.switch_trays]
    out: list[str] = []
    top = 40
    for start in range(0, len(shown), _ACROSS):
        band = shown[start : start + _ACROSS]
        tall = max(len(nodes[rack.name]) for rack in band) * _ROW + 70
        for at, rack in enumerate(band):
            out += _rack(rack, nodes[rack.name], 10 + at * _RACK, top)
        top += tall
    width = min(_ACROSS, max(len(shown), 1)) * _RACK + 20
    note = " (simulated)" if site.simulated else ""
    title = f"{escape(site.name)}{note}: {len(site.racks)} racks, {len(site.nodes)} nodes, {site.gpus()} GPUs"
    legend = "".join(
        f'<rect x="{10 + at * 90}" y="{top}" width="10" height="10" class="{health.value}"/>'
        f'<text x="{24 + at * 90}" y="{top + 9}">{health.value}</text>'
        for at, health in enumerate(Health)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {max(width, 400)} {top + 20}" role="img"'
        f' style="max-width:{max(width, 400)}px" aria-label="{title}">'
        f'<style>{_STYLE}</style><text x="10" y="18">{title}</text>{"".join(out)}{legend}</svg>'
    )


def _rack(rack: Rack, nodes: Sequence[Node], x: int, y: int) -> list[str]:
    alone = rack.domain is None and rack.nvlink is Health.HEALTHY
    domain = "no NVLink domain" if alone else str(rack.domain or "NVLink domain unknown")
    words = domain if alone else f"NVLink {rack.nvlink.value}"
    out = [
        f'<text x="{x}" y="{y + 10}"><title>{escape(domain)}</title>{escape(rack.name)}</text>',
        f'<text x="{x}" y="{y + 22}" class="soft">{words}</text>',
    ]
    height = len(nodes) * _ROW + 8
    off = " off" if rack.domain and rack.nvlink is not Health.HEALTHY else ""
    out.append(f'<rect x="{x}" y="{y + 28}" width="{_RACK - 16}" height="{height}" class="frame{off}"/>')
    for row, node in enumerate(reversed(nodes)):
        out += _tray(node, x + 4, y + 32 + row * _ROW)
    for at, tray in enumerate(rack.switch_trays):
        out.append(
            f'<rect x="{x + 4 + at * 14}" y="{y + 40 + height - 8}" width="12" height="8" class="{tray.health.value}">'
            f"<title>{escape(tray.name)}: switch tray, slot {tray.slot}, {tray.health.value}</title></rect>"
        )
    return out


def _tray(node: Node, x: int, y: int) -> list[str]:
    mark = " cordoned" if node.cordoned else ""
    own = "" if node.health is Health.HEALTHY else f" {node.health.value}"
    slot = f"slot {node.slot}" if node.slot >= 0 else "slot unknown"
    tip = f"{node.name}: {slot}, {node.health.value}" + (f", cordoned: {node.cordoned}" if mark else "")
    out = [
        f'<g><title>{escape(tip)}</title><rect x="{x}" y="{y}" width="{_RACK - 24}" height="{_ROW - 3}"'
        f' class="tray{own}{mark}"/><text x="{x + 3}" y="{y + 10}">{escape(_short(node.name))}</text></g>'
    ]
    side = 4 if len(node.gpus) > 4 else 8
    for at, gpu in enumerate(node.gpus):
        links = "links unknown" if gpu.nvlinks < 0 else f"{gpu.nvlinks} NVLinks"
        out.append(
            f'<rect x="{x + 70 + at * side}" y="{y + 2}" width="{side - 2}" height="9" class="{gpu.health.value}">'
            f"<title>GPU {gpu.index}: {escape(gpu.kind)}, {links}, {gpu.health.value}</title></rect>"
        )
    nics = x + 74 + len(node.gpus) * side if node.gpus else x + 106
    step = max(2, min(4, (x + _RACK - 26 - nics) // max(len(node.nics), 1)))
    for at, nic in enumerate(node.nics):
        out.append(
            f'<rect x="{nics + at * step}" y="{y + 2}" width="{step - 1}" height="9" class="{nic.health.value}">'
            f"<title>{escape(nic.name)}: rail {nic.rail}, {escape(nic.leaf or 'no leaf known')},"
            f" {nic.gbps} Gb/s, {nic.health.value}</title></rect>"
        )
    return out


def _short(name: str) -> str:
    return name if len(name) <= 11 else "…" + name[-10:]


def page(site: Site, findings: Sequence[Finding] = ()) -> str:
    """The picture, the rail matrix and the findings as one self-contained HTML page."""
    env = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = env.from_string((files("rackyard.report") / "templates" / "topology.html").read_text())
    rails, rows = rail_table(site)
    failed = [one for one in findings if one.verdict is Verdict.FAIL]
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    return template.render(
        site=site,
        picture=svg(site),
        rails=rails,
        rows=rows,
        findings=sorted(failed, key=lambda one: order.index(one.severity)),
        checked=bool(findings),
    )


Words = tuple[str, str]
"""Text and class of one cell of the rail table."""


def rail_table(site: Site) -> tuple[tuple[int, ...], list[tuple[str, list[Words]]]]:
    """The rails, and for each rack with leaves a cell for each rail."""
    matrix = rail_matrix(site)
    rows = []
    for rack, leaves in matrix.rows.items():
        # A rack is to have a leaf on the rails that its own HCAs are for, not on those of other machines.
        wanted = matrix.wanted.get(rack, 0)
        rows.append((rack, [_words(leaves.get(rail, ()), rail < wanted) for rail in matrix.rails]))
    return matrix.rails, rows


def _words(cells: Sequence[Cell], wanted: bool) -> Words:
    if not cells:
        return ("no leaf", "bad") if wanted else ("", "")
    words = [f"{cell.leaf}: {cell.up}/{cell.nics} NICs up, {cell.uplinks} uplinks" for cell in cells]
    good = all(cell.up == cell.nics and not cell.short for cell in cells)
    return "; ".join(words), "" if good else "warn"
