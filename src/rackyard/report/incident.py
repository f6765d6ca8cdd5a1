"""The incident report of one job: what broke, what was done, what it cost. Pure: events in, HTML out."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import jinja2

from rackyard.fabric import Site
from rackyard.jobs import events as ev
from rackyard.jobs.events import Record
from rackyard.jobs.recovery import Recovery, goodput, recoveries
from rackyard.jobs.state import Attempt, JobState, fold
from rackyard.jobs.why import why
from rackyard.placement import decode
from rackyard.report.charts import COLOURS, Curve, Tray, loss_plot, rack_wall, split_bar


@dataclass(frozen=True, slots=True)
class Extra:
    """What a report may show besides the job's own events."""

    control: Sequence[tuple[float, float]] = ()
    """(step, loss) of a run without faults."""
    figures: Sequence[tuple[str, str]] = ()
    """More (name, value) pairs for the first screen."""
    pictures: Sequence[tuple[str, Path]] = ()
    """(title, PNG file) pairs, embedded."""
    timeline: Sequence[str] = field(default_factory=tuple)
    """Lines to show as the timeline."""


def render(records: Sequence[Record], site: Site, extra: Extra) -> str:
    """The report as one HTML text. ValueError when there are no records."""
    state = fold(records)
    if state is None:
        raise ValueError("no events: nothing to report")
    found = recoveries(state)
    longest = max((item.total or 0.0 for item in found), default=0.0)
    env = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = env.from_string((files("rackyard.report") / "templates" / "incident.html").read_text())
    return template.render(
        state=state,
        why=why(state),
        site=site.name,
        simulated=site.simulated,
        figures=[*_figures(state, found), *extra.figures],
        colours=COLOURS,
        recoveries=found,
        bars=[split_bar(item.parts, longest) for item in found],
        plot=loss_plot(_curves(records, extra), _marks(state)),
        walls=[(attempt.number, _wall(attempt, state, site)) for attempt in state.attempts],
        pictures=[(title, _inline(path)) for title, path in extra.pictures],
        timeline=extra.timeline,
    )


def mean_recovery(found: Sequence[Recovery]) -> float | None:
    """Mean seconds to recover over the finished recoveries; None without any."""
    totals = [item.total for item in found if item.total is not None]
    return sum(totals) / len(totals) if totals else None


def losses(records: Sequence[Record]) -> list[tuple[float, float]]:
    """(step, loss) in step order; a step that was computed again holds its newest value."""
    curve: dict[int, float] = {}
    for record in records:
        if isinstance(record.event, ev.Progress):
            curve.update({step: metrics["loss"] for step, metrics in record.event.points if "loss" in metrics})
    return sorted((float(step), loss) for step, loss in curve.items())


def _figures(state: JobState, found: Sequence[Recovery]) -> list[tuple[str, str]]:
    mean, share = mean_recovery(found), goodput(state)
    return [
        ("faults recovered", str(len(found))),
        ("mean time to recover", "-" if mean is None else f"{mean:.2f} s"),
        ("steps computed again", str(sum(item.steps_lost for item in found))),
        ("goodput", "-" if share is None else f"{share:.1%}"),
        ("newest step", str(state.best_step)),
    ]


def _curves(records: Sequence[Record], extra: Extra) -> list[Curve]:
    curves = [Curve("with faults", losses(records), "#3a87c8")]
    if extra.control:
        curves.append(Curve("control run, no faults", list(extra.control), "#e8833a", dashed=True))
    return curves


def _marks(state: JobState) -> dict[int, str]:
    return {attempt.step: attempt.fault.cause for attempt in state.attempts if attempt.fault is not None}


def _wall(attempt: Attempt, state: JobState, site: Site) -> str:
    """The racks that the job ever used, as they were when this attempt ended."""
    placement = decode(dict(attempt.placement))
    used, spares = set(placement.nodes()), set(placement.spares)
    until = [other for other in state.attempts if other.number <= attempt.number and other.fault is not None]
    lost = {name for other in until if other.fault is not None for name in other.fault.nodes}
    down = {name for other in until if other.fault is not None for name in other.fault.racks}
    seats = [decode(dict(other.placement)) for other in state.attempts]
    racks = dict.fromkeys(site.node(name).rack for seat in seats for name in seat.nodes())

    def kind(name: str) -> str:
        return "lost" if name in lost else "used" if name in used else "spare" if name in spares else "free"

    return rack_wall(
        {
            rack: ([Tray(node.name, kind(node.name)) for node in site.nodes_in_rack(rack)], rack in down)
            for rack in racks
        }
    )


def _inline(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
