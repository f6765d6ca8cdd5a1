"""Answers of `rackyard sched` as plain data and as tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from rackyard.cli.common import print_table

if TYPE_CHECKING:
    from rackyard.fabric import Site
    from rackyard.placement.replay import Metrics, Rules
    from rackyard.placement.traces import Generator, Trace

_QUEUES = {
    "easy": "priority, first come first served, EASY backfill",
    "full": "priority, teams in turn, reservations, elders, preemption; no quotas",
}
_FAR = 0.8
"""Share of the work that must fit before the last submission, lest occupancy needs a word of explanation."""
_OF_FAILURES = ("failures", "faults", "goodput", "lost")
_WHEN_ANY = ("never", "stuck", "preemptions", "segments", "split", "moved", "cut")
"""Figures that are left out of the table where they are 0 for every policy."""


def plain_replay(
    site: "Site", jobs: "Trace", generator: "Generator | None", rules: "Rules", found: "Sequence[Metrics]"
) -> dict[str, Any]:
    """What was replayed, on what, and the figures of each policy."""
    from rackyard.placement.replay import labels, named

    names = ("name", "label", "unit", "meaning")
    policies = []
    for metrics in found:
        policy = named([metrics.policy])[0]
        told = {"name": policy.name, "rule": policy.line, "segments": policy.segments, "source": policy.source}
        policies.append(
            {**told, "figures": {name: value for name, value in asdict(metrics).items() if name != "policy"}}
        )
    return {
        "site": {"name": site.name, "simulated": site.simulated, "nodes": len(site.nodes), "gpus": site.gpus()},
        "trace": _plain_trace(site, jobs, generator),
        "queue": {
            "name": rules.queue,
            "discipline": _QUEUES[rules.queue],
            "estimate": rules.estimate,
            "restart_seconds": rules.restart,
        },
        "figures": [dict(zip(names, row, strict=True)) for row in labels() if row[0] != "policy"],
        "policies": policies,
    }


def _plain_trace(site: "Site", jobs: "Trace", generator: "Generator | None") -> dict[str, Any]:
    from rackyard.placement.replay import reach
    from rackyard.placement.traces import load_of

    load = load_of(jobs, site.gpus())
    described = generator.describe() if generator is not None else ()
    return {
        "source": jobs.source,
        "jobs": len(jobs.jobs),
        "gpu_seconds": jobs.gpu_seconds,
        "window_seconds": jobs.window,
        "load": load if load != float("inf") else None,
        "reach": reach(jobs),
        "notes": list(jobs.notes),
        "dropped": [{"why": why, "rows": rows} for why, rows in jobs.reasons().items()],
        "generator": [{"name": name, "value": value, "meaning": text} for name, value, text in described],
    }


def failures_told(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where failures come from; None for none."""
    if options["failures"] is not None:
        return {"list": str(options["failures"])}
    if not options["fail_rate"]:
        return None
    return {"per_node_day": options["fail_rate"], "repair_hours": options["repair"], "seed": options["seed"]}


def show_replay(data: Mapping[str, Any]) -> None:
    """Print a replay: what was replayed, the rules, and one column of figures a policy."""
    _show_trace(data["site"], data["trace"])
    queue, failures = data["queue"], data["failures"]
    click.echo(f"\nqueue: {queue['discipline']}; jobs ask for {queue['estimate']:g} times what they need")
    if failures:
        click.echo(f"failures: {_failures(failures)}")
        click.echo(
            f"a gang that is hit goes on from its last checkpoint, {queue['restart_seconds']:g} s after its new start"
        )
    click.echo("simulated time: only decisions are measured, in CPU time on this machine\n")
    policies = data["policies"]
    keys = ("name", "rule", "segments", "source")
    print_table(["policy", *keys[1:]], [[policy[key] for key in keys] for policy in policies])
    click.echo("")
    figures = [policy["figures"] for policy in policies]
    rows = [
        [row["label"], _unit(row["unit"]), *(_value(row["unit"], one[row["name"]]) for one in figures)]
        for row in data["figures"]
        if _worth(row["name"], figures)
    ]
    print_table(["figure", "unit", *(policy["name"] for policy in policies)], rows, as_is=True)


def _failures(told: Mapping[str, Any]) -> str:
    if "list" in told:
        return f"those of {told['list']}"
    return f"{told['per_node_day']:g} per node and day, repaired after {told['repair_hours']:g} h, seed {told['seed']}"


def _show_trace(site: Mapping[str, Any], trace: Mapping[str, Any]) -> None:
    from rackyard.placement.replay import rows_of

    made_up = " (simulated)" if site["simulated"] else ""
    click.echo(f"site {site['name']}{made_up}: {site['nodes']:,} nodes, {site['gpus']:,} GPUs")
    when = "all at once"
    if trace["load"] is not None:
        when = f"in {trace['window_seconds'] / 86400:,.3g} days, offered load {trace['load']:.3g}"
    click.echo(f"trace: {trace['source']}: {trace['jobs']:,} job{'s' if trace['jobs'] != 1 else ''} {when}")
    for note in trace["notes"]:
        click.echo(f"  {note}")
    for row in trace["dropped"]:
        click.echo(f"  left out, {rows_of(row['rows'])}: {row['why']}")
    if trace["load"] is None:
        click.echo("  no time passes between the first job and the last: there is no occupancy to measure")
    elif trace["reach"] < _FAR:
        share = f"{100 * trace['reach']:.0f} %"
        click.echo(f"  only {share} of the work can be done before the last job comes: long jobs in a short trace keep")
        click.echo("  occupancy below the offered load under every policy")
    if trace["generator"]:
        click.echo("")
        print_table(["parameter", "value", "meaning"], [tuple(row.values()) for row in trace["generator"]])


def _worth(name: str, figures: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a line says anything."""
    if name in _OF_FAILURES:
        return any(one["failures"] for one in figures)
    return name not in _WHEN_ANY or any(one[name] for one in figures)


def _unit(unit: str) -> str:
    return {"share": "%", "": "-", "ratio": "-"}.get(unit, unit)


def _value(unit: str, value: float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    if unit == "share":
        return f"{100 * value:.1f}"
    if unit == "ratio":
        return f"{value:.3f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def machine() -> str:
    """What decisions were timed on, in words."""
    import os
    import platform

    return f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"


def show_bench(data: Mapping[str, Any]) -> None:
    """Print the times of decisions."""
    click.echo(f"simulated sites, half full; measured on this machine ({data['machine']}): {data['unit']}")
    click.echo("rules of other schedulers are restated here: their times say nothing of those programs\n")
    keys: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
        ("nodes", "nodes", "{:,}".format),
        ("gpus", "GPUs of the gang", "{:,}".format),
        ("policy", "policy", str),
        ("p50", "p50", "{:.3f}".format),
        ("p99", "p99", "{:.3f}".format),
        ("count", "decisions", str),
        ("placed", "placed", str),
    )
    print_table([label for _, label, _ in keys], [[form(row[key]) for key, _, form in keys] for row in data["rows"]])
