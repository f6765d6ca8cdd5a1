"""The pictures of the incident report as SVG text. Pure: numbers in, markup out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, PAD = 860, 260, 46
COLOURS = {
    "detect": "#d64545",
    "decide": "#e8833a",
    "stop": "#e6b93d",
    "place": "#8fb339",
    "start": "#3d9970",
    "load": "#3a87c8",
    "recompute": "#7b61c9",
}
"""One colour for each part of a recovery."""


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a plot: (x, y) points, and how it is drawn."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    dashed: bool = False


def loss_plot(curves: Sequence[Curve], marks: Mapping[int, str]) -> str:
    """Loss over step, with a vertical mark at each faulty step. Empty where no curve has points."""
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for _, y in curve.points]
    if not xs:
        return ""
    low, high = min(ys), max(ys)
    left, right = min(xs), max(xs)

    def at(x: float, y: float) -> str:
        across = PAD + (x - left) / ((right - left) or 1) * (WIDTH - 2 * PAD)
        down = HEIGHT - PAD - (y - low) / ((high - low) or 1) * (HEIGHT - 2 * PAD)
        return f"{across:.1f},{down:.1f}"

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="loss by step">']
    for step, text in marks.items():
        x = at(step, low).split(",")[0]
        parts.append(f'<line x1="{x}" y1="{PAD - 20}" x2="{x}" y2="{HEIGHT - PAD}" class="mark"/>')
        parts.append(f'<text x="{x}" y="{PAD - 24}" text-anchor="middle">{escape(text)}</text>')
    for curve in curves:
        line = " ".join(at(x, y) for x, y in curve.points)
        dash = ' stroke-dasharray="2 5"' if curve.dashed else ""
        parts.append(f'<polyline points="{line}" fill="none" stroke="{curve.colour}" stroke-width="2"{dash}/>')
    for place, value in ((HEIGHT - PAD, low), (PAD, high)):
        parts.append(f'<text x="{PAD - 6}" y="{place}" text-anchor="end">{value:.3f}</text>')
    parts.append(f'<text x="{PAD}" y="{HEIGHT - 18}">step {left:g}</text>')
    parts.append(f'<text x="{WIDTH - PAD}" y="{HEIGHT - 18}" text-anchor="end">step {right:g}</text>')
    for at_, curve in enumerate(curves):
        parts.append(
            f'<text x="{WIDTH - PAD}" y="{PAD + 16 * at_}" text-anchor="end" style="fill:{curve.colour}">'
            f"{escape(curve.name)}</text>"
        )
    return "".join([*parts, "</svg>"])


def split_bar(parts: Mapping[str, float | None], longest: float) -> str:
    """One recovery as a bar of its parts; `longest` seconds fill the width."""
    x, out = 0.0, [f'<svg viewBox="0 0 {WIDTH} 30" role="img" aria-label="time to recover">']
    for name, seconds in parts.items():
        width = (seconds or 0.0) / (longest or 1) * WIDTH
        out.append(f'<rect x="{x:.1f}" y="2" width="{width:.1f}" height="26" fill="{COLOURS[name]}"/>')
        if width > 70:
            out.append(f'<text x="{x + 5:.1f}" y="20" class="on">{name} {seconds:.2f} s</text>')
        x += width
    return "".join([*out, "</svg>"])


@dataclass(frozen=True, slots=True)
class Tray:
    """One compute tray of the rack wall."""

    name: str
    kind: str
    """`free`, `used`, `spare` or `lost`."""


def rack_wall(racks: Mapping[str, tuple[Sequence[Tray], bool]]) -> str:
    """Racks side by side, a cell a tray; a rack whose NVLink domain is down is struck through."""
    tall = max((len(trays) for trays, _ in racks.values()), default=0)
    out = [f'<svg viewBox="0 0 {len(racks) * 150 + 10} {tall * 15 + 40}" role="img" aria-label="racks" class="wall">']
    for at, (rack, (trays, down)) in enumerate(racks.items()):
        x = at * 150 + 10
        out.append(f'<text x="{x}" y="16">{escape(rack)}{" NVLink down" if down else ""}</text>')
        out.append(f'<rect x="{x}" y="22" width="130" height="{len(trays) * 15 + 6}" class="frame"/>')
        for row, tray in enumerate(trays):
            y = 25 + row * 15
            text = escape(tray.name if tray.kind == "free" else f"{tray.name} {tray.kind}")
            out.append(
                f'<rect x="{x + 4}" y="{y}" width="122" height="13" class="{tray.kind}"/>'
                f'<text x="{x + 8}" y="{y + 10}" class="tray">{text}</text>'
            )
        if down:
            out.append(f'<line x1="{x}" y1="22" x2="{x + 130}" y2="{28 + len(trays) * 15}" class="down"/>')
    return "".join([*out, "</svg>"])
