"""`rackyard sched`: traces replayed under the rules of several schedulers, and how long decisions take."""

import math
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rackyard.cli.common import emit, hint, output_option
from rackyard.cli.inputs import STDIN

if TYPE_CHECKING:
    from rackyard.fabric import Site
    from rackyard.placement.columns import Columns
    from rackyard.placement.replay import Failure, Metrics, Wanted
    from rackyard.placement.traces import Generator, Trace

RACKS, TRAYS, PER_BLOCK = 64, 18, 8
"""The made-up site: 1,152 trays and 4,608 GPUs in blocks of 8 racks."""
BENCH_RACKS = (8, 64, 350)
"""Sites of 144, 1,152 and 6,300 nodes: Volcano's dry runs were measured at 6,000 (volcano PR #5811)."""
MOST_RACKS = 2000

POLICY_NAMES = "rackyard, first-fit, best-fit, tier-by-tier, per-level, slurm-block"
"""For --help, which loads nothing."""

policy_option = click.option(
    "--policy", "names", multiple=True, metavar="NAME", help=f"May be repeated; default: all ({POLICY_NAMES})."
)


@click.group("sched", context_settings={"help_option_names": ["-h", "--help"]})
def sched() -> None:
    """Replay traces under the rules of several schedulers; time decisions."""


@sched.command("replay")
@click.argument("trace", metavar="TRACE")
@click.option("--site", type=click.Path(path_type=Path), help="Site file; default: a simulated site.")
@click.option("--racks", type=click.IntRange(1, MOST_RACKS), help=f"NVL72 racks simulated.  [default: {RACKS}]")
@click.option("--trays", type=click.IntRange(1, TRAYS), help=f"Compute trays of each.  [default: {TRAYS}]")
@click.option("--racks-per-block", type=click.IntRange(0), help=f"0: one block.  [default: {PER_BLOCK}]")
@policy_option
@click.option("--load", type=click.FloatRange(0, min_open=True), help="Offered work over the site's GPUs, e.g. 0.9.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of a generated trace, and of failures.")
@click.option("--jobs", type=click.IntRange(1), help="So many jobs: generated, or the first of the file.")
@click.option(
    "--queue",
    type=click.Choice(["easy", "full"]),
    default="easy",
    show_default=True,
    help="Plain, with EASY backfill; or ours, with preemption (slower).",
)
@click.option(
    "--estimate",
    type=click.FloatRange(0.1, 100),
    default=1.5,
    show_default=True,
    help="What jobs say they need, over what they do need.",
)
@click.option("--fail-rate", type=click.FloatRange(0), help="Failures of nodes per node and day, e.g. 0.004.")
@click.option(
    "--repair",
    type=click.FloatRange(0, min_open=True),
    default=4.0,
    show_default=True,
    help="Hours that they are away.",
)
@click.option(
    "--failures", type=click.Path(path_type=Path, allow_dash=True), help="A list: time,node,repair in seconds."
)
@output_option
def replay(trace: str, names: tuple[str, ...], output: str, **options: Any) -> None:
    """Replay TRACE on a site under several policies and compare what comes of it. Nothing is started anywhere.

    TRACE is a file (Philly, Helios, Acme, Alibaba, Tiresias), `-`, `generated`, or `generated:key=value,…` with the
    parameters that the answer lists. Without --load a trace of a file keeps its own times. See docs/replay.md.
    """
    from rackyard.cli.sched_show import failures_told, plain_replay, show_replay
    from rackyard.placement.columns import Columns
    from rackyard.placement.replay import Rules, Wanted, measure, named, simulate

    _check(trace, options)
    policies = named(names)
    site = _site(options)
    columns = Columns.of(site)
    jobs, generator = _trace(trace, columns, Wanted(options["jobs"], options["load"], options["seed"]))
    rules = Rules(options["queue"], options["estimate"])
    found: list[Metrics] = []
    for policy in policies:
        failures = _failures(options, columns)
        with _Progress(policy.name, len(jobs.jobs)) as progress:
            replayed = simulate(jobs.jobs, columns, policy, rules, failures, progress.told)
        found.append(measure(replayed))
    data = {**plain_replay(site, jobs, generator, rules, found), "failures": failures_told(options)}
    emit(output, data, lambda: show_replay(data))


@sched.command("bench")
@click.option(
    "--racks", "sizes", type=click.IntRange(1, MOST_RACKS), multiple=True, help="May be repeated.  [default: 8 64 350]"
)
@policy_option
@click.option("--count", type=click.IntRange(1, 1000), default=50, show_default=True, help="Decisions of each kind.")
@output_option
def bench(sizes: tuple[int, ...], names: tuple[str, ...], count: int, output: str) -> None:
    """Time decisions on simulated sites that are half full, in CPU milliseconds on this machine."""
    from rackyard.cli.sched_show import machine, show_bench
    from rackyard.fabric import simulate
    from rackyard.placement import Request
    from rackyard.placement.columns import Columns
    from rackyard.placement.replay import bench as timed
    from rackyard.placement.replay import named

    policies = named(names)
    rows: list[dict[str, Any]] = []
    for racks in sizes or BENCH_RACKS:
        columns = Columns.of(simulate(racks=racks, racks_per_block=PER_BLOCK))
        nodes = len(columns.names)
        for gpus, segment in ((4, None), (64, 64), (1024, 64)):
            if 3 * gpus > nodes * 4:
                continue  # half of the site is in use
            for policy in policies:
                timing = timed(columns, policy, Request(gpus, segment_gpus=segment), count)
                rows.append({"nodes": nodes, "gpus": gpus, "policy": policy.name, **asdict(timing)})
    data = {"simulated": True, "machine": machine(), "unit": "CPU milliseconds a decision", "rows": rows}
    emit(output, data, lambda: show_bench(data))


def _check(trace: str, options: dict[str, Any]) -> None:
    """UsageError for options that click lets through and that mean nothing."""
    from rackyard.errors import UsageError

    if math.isnan(options["estimate"]):
        raise UsageError("--estimate is nan", why="expected a number from 0.1 to 100", fix="give, for example, 1.5")
    if trace == str(options["failures"]) == STDIN:
        why = "both are read from standard input"
        raise UsageError("TRACE and --failures are both -", why=why, fix="give a file for one of them")


def _site(options: dict[str, Any]) -> "Site":
    """The site file's, or a simulated one. UsageError for both, and for a site with nothing on it."""
    from rackyard.controller.sites import read_site
    from rackyard.errors import UsageError
    from rackyard.fabric import simulate

    if options["site"] is None:
        per_block = PER_BLOCK if options["racks_per_block"] is None else options["racks_per_block"]
        return simulate(racks=options["racks"] or RACKS, trays=options["trays"] or TRAYS, racks_per_block=per_block)
    for name in ("racks", "trays", "racks_per_block"):
        if options[name] is not None:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"--site and {flag} together", why="the site file says what there is", fix=f"leave {flag}")
    site = read_site(options["site"])
    if not site.gpus():
        fix = "give a site with at least one rack or server"
        raise UsageError("the site has no GPUs", where=str(options["site"]), fix=fix)
    return site


def _trace(name: str, columns: "Columns", wanted: "Wanted") -> "tuple[Trace, Generator | None]":
    from rackyard.placement.replay import fitted, generator_of, is_generated
    from rackyard.placement.traces import generate, read_trace

    if is_generated(name):
        generator = generator_of(name, columns, wanted)
        return generate(generator), generator
    return fitted(read_trace(_text(Path(name)), name), columns, wanted, name), None


def _text(file: Path) -> str:
    """A file's text. UsageError when it can't be read, or is none."""
    from rackyard.cli.inputs import read_bytes
    from rackyard.errors import UsageError

    try:
        return read_bytes(file).decode()
    except UnicodeDecodeError as error:
        why, fix = f"byte {error.start + 1} is not UTF-8", "unpack it first, if it is packed"
        raise UsageError("the file is no text", where=str(file), why=why, fix=fix) from None


def _failures(options: dict[str, Any], columns: "Columns") -> "Iterable[Failure]":
    """The failures, from the first one on: every policy meets the same ones."""
    from rackyard.errors import UsageError
    from rackyard.placement.replay import by_rate, check_rate, read_failures

    rate, file = options["fail_rate"] or 0.0, options["failures"]
    if file is None:
        check_rate(rate, options["repair"] * 3600)
        return by_rate(len(columns.names), rate, options["repair"] * 3600, options["seed"])
    if options["fail_rate"] is not None:
        raise UsageError("--fail-rate and --failures together", why="both say what fails", fix="give one of them")
    if "listed" not in options:  # standard input can be read only once
        options["listed"] = read_failures(_text(file), str(file), columns)
    listed: Iterable[Failure] = options["listed"]
    return listed


class _Progress:
    """A line that counts up on a terminal; elsewhere one line at the end of each policy. On standard error."""

    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.shown = what, total, -1
        self.live = sys.stderr.isatty()

    def __enter__(self) -> "_Progress":
        return self

    def told(self, ended: int) -> None:
        """So many jobs have ended."""
        share = 100 * ended // max(1, self.total)
        if self.live and share != self.shown:
            self.shown = share
            click.echo(f"\r{self.what}: {ended:,} of {self.total:,} jobs", err=True, nl=False)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.live:
            click.echo("\r\033[K", err=True, nl=False)
        elif error is None:
            hint(f"replayed {self.total:,} job{'s' if self.total != 1 else ''} under {self.what}")
