"""What a rejection proposes is tried here: the changed job is one that a file can say, and it is placed."""

import re
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rackyard.fabric import Health, Site, simulate
from rackyard.jobs.specfile import parse_spec
from rackyard.placement import Group, Occupancy, Parallel, Placement, Rejection, Request, explain, place
from rackyard.placement.decide import looks, misfits
from rackyard.placement.engine import place_on
from rackyard.placement.model import SCOPES, Spread
from rackyard.placement.reject import Refusal, refusal
from rackyard.placement.rules import valid
from rackyard.placement.sizes import form
from rackyard.placement.unknown import mismatch
from rackyard.placement.yard import Yard

BASES = [
    simulate(4, 6, racks_per_block=2),
    simulate(1, 4, hgx=8),
    simulate(2, 18),
    simulate(3, 5, hgx=2),
    simulate(0, hgx=6),
    simulate(6, 3, racks_per_block=3),
]

SPREADS: tuple[tuple[Spread, int], ...] = (
    ("pack", 1),
    ("pack", 1),
    ("pack", 1),
    ("spread", 1),
    (2, 1),
    (9, 1),
    ("pack", 2),
    ("pack", 10),
)
"""With the copies of a checkpoint, which a job can only keep apart instead of spreading."""


def drawn(draw: Random) -> tuple[Site, Occupancy, Request]:
    """A small, mixed, partly used site and a job that a file could ask for, as often as not one that has no seat."""
    site = draw.choice(BASES)
    names = [node.name for node in site.nodes]
    site = site.with_cordon(dict.fromkeys(draw.sample(names, draw.choice((0, 0, 1, 3))), "drawn"))
    site = site.with_health(
        nodes=dict.fromkeys(draw.sample(names, draw.choice((0, 0, 2))), Health.DOWN),
        nvlink={rack.name: Health.DOWN for rack in site.racks if draw.random() < 0.05},
    )
    busy = draw.sample(names, int(len(names) * draw.choice((0, 0.2, 0.5, 0.9))))
    used = {name: frozenset(gpu.index for gpu in site.node(name).gpus[: draw.choice((1, 8, 8))]) for name in busy}
    while True:
        request = _request(draw, site, names)
        if valid(request):
            return site, Occupancy(used, dict.fromkeys(used, ("other",))), request


def _request(draw: Random, site: Site, names: list[str]) -> Request:
    segment = draw.choice((None, None, 1, 2, 4, 6, 7, 8, 12, 16, 32))
    gpus = (segment or 1) * draw.choice((1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 36))
    groups: tuple[Group, ...] = ()
    if draw.random() < 0.3:
        run = (segment or 4) * draw.choice((1, 2, 4, 8))
        groups = (Group(run, draw.choice(SCOPES), draw.random() < 0.7),)
    spread, copies = draw.choice(SPREADS)
    return Request(
        gpus,
        segment_gpus=segment,
        segment_required=draw.random() < 0.7,
        groups=groups,
        parallel=Parallel(tp=draw.choice((1, 2)), pp=draw.choice((1, 2, 3))) if draw.random() < 0.15 else None,
        spread=spread,
        copies=copies,
        exclusive=draw.random() < 0.1,
        rails=draw.choice(("aligned", "any")),
        spares=draw.choice((0, 0, 0, 1, 2)),
        exclude=frozenset(draw.sample(names, draw.choice((0, 0, 1)))),
        exclude_racks=frozenset(draw.sample([rack.name for rack in site.racks], draw.choice((0, 0, 0, 1)))),
        pin=frozenset(draw.sample(names, draw.choice((0, 0, 0, 0, 0, 0, 1, 2)))),
        gpu_kind=draw.choice((None, None, None, "GB300", "H200")),
        gpu_memory=draw.choice((0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 140.0, 200.0, 300.0)),
        nic_gbps=draw.choice((0, 0, 0, 0, 0, 0, 0, 400, 800, 1600)),
        domain_gpus=draw.choice((0, 0, 0, 0, 0, 0, 0, 8, 20, 144)),
    )


def refused(request: Request, site: Site, occupancy: Occupancy) -> Refusal | None:
    """The rejection with what it proposes; None where the gang is placed, or names what is not there."""
    yard = Yard.open(site, occupancy)
    if isinstance(place_on(request, yard, occupancy), Placement) or mismatch(request, yard) is not None:
        return None
    return refusal(request, yard, occupancy, list(looks(request, yard)), misfits(request, yard))


def idle(site: Site) -> Site:
    """Every node healthy and in service."""
    nodes = tuple(replace(node, health=Health.HEALTHY, cordoned="") for node in site.nodes)
    return replace(site, nodes=nodes).with_health(nvlink={rack.name: Health.HEALTHY for rack in site.racks})


@settings(max_examples=150, deadline=None)
@example(4759)  # spread over two racks, and a pinned node in a block that has no room
@given(st.integers(0, 1 << 40))
def test_what_is_proposed_is_a_job_and_is_placed(seed: int) -> None:
    site, occupancy, request = drawn(Random(seed))
    found = refused(request, site, occupancy)
    if found is None:
        return
    assert found.rejection == place(request, site, occupancy)
    said = found.rejection.fix.removesuffix("nothing of this form fits now")
    assert ("fits now" in said) == any(change.now for change in found.changes) or "gpus: " in said, said
    for change in found.changes:
        assert valid(change.request) and change.request != request
        on = (site, occupancy) if change.now else (idle(site), Occupancy())
        answer = place(change.request, *on)
        assert isinstance(answer, Placement), (found.rejection, change, explain(answer))
        assert change.text in found.rejection.fix or "`" not in found.rejection.fix
        assert written(change.text, request) == change.request, change.text


SAID = re.compile(
    r"no `(?P<no>\w+)`|`nodes\.(?P<of>\w+)` without (?P<names>.+?)(?= with | and no | and `|$)"
    r"|`(?P<yaml>[a-z_]+: [^`]+)`(?: in `(?P<within>\w+)`)?"
)


def written(text: str, request: Request) -> Request:
    """The request with what the text says to write."""
    for found in SAID.finditer(text):
        if found["no"]:
            key = "segment_gpus" if found["no"] == "segment" else found["no"]
            request = replace(request, **{key: {"segment_gpus": None, "groups": ()}.get(key, 0)})  # type: ignore[arg-type]
        elif found["of"]:
            left = getattr(request, found["of"]) - set(found["names"].split(", "))
            request = replace(request, **{found["of"]: left})
        else:
            request = _with(request, yaml.safe_load(found["yaml"]), found["within"] or "")
    return request


def _with(request: Request, said: dict[str, Any], within: str) -> Request:
    ((key, value),) = said.items()
    if within == "groups":
        return replace(request, groups=tuple(replace(group, required=False) for group in request.groups))
    if within == "segment" or key == "required":
        return replace(request, segment_required=False)
    if key == "segment":
        gpus, must = value.get("gpus", request.segment_gpus), value.get("required", request.segment_required)
        return replace(request, segment_gpus=gpus, segment_required=must)
    if key == "groups":
        return replace(request, groups=tuple(Group(**group) for group in value))
    if key == "checkpoint":
        return replace(request, copies=value["replicas"] + 1)
    if key == "spread":
        copies = 1 if value == "pack" else request.copies
        return replace(request, spread=value["racks"] if isinstance(value, dict) else value, copies=copies)
    if key == "gpu":
        return replace(request, gpu_kind=value)
    return replace(request, **{key: value})


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 1 << 40))
def test_the_most_that_fits_is_the_most(seed: int) -> None:
    site, occupancy, request = drawn(Random(seed))
    found = refused(request, site, occupancy)
    if found is None or not found.rejection.fix.endswith(
        ("is the most that fits now", "nothing of this form fits now")
    ):
        return
    least = found.changes[0].request.gpus if found.changes else 0
    for gpus in range(least + 1, request.gpus):
        larger = form(request, gpus)
        if valid(larger):
            assert isinstance(place(larger, site, occupancy), Rejection), (found.rejection.fix, gpus)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 40))
def test_the_rules_are_those_of_the_job_file(seed: int) -> None:
    draw = Random(seed)
    gpus, segment = draw.randint(1, 48), draw.choice((None, 1, 2, 3, 4, 8))
    scopes = draw.sample(SCOPES, draw.choice((0, 1, 2)))
    groups = tuple(Group(draw.choice((2, 4, 8, 12, 24)), scope) for scope in scopes)
    plan = Parallel(*(draw.choice((1, 2, 3)) for _ in range(4))) if draw.random() < 0.4 else None
    racks, copies = draw.choice((None, 2, 5, 20)), draw.choice((1, 2, 3, 9))
    text = f"name: a\nrun: 'true'\ngpus: {gpus}\n" + (f"segment: {{gpus: {segment}}}\n" if segment else "")
    text += f"groups: [{', '.join(f'{{gpus: {each.gpus}, within: {each.within}}}' for each in groups)}]\n"
    if plan:
        text += f"parallel: {{tp: {plan.tp}, pp: {plan.pp}, cp: {plan.cp}, ep: {plan.ep}}}\n"
    request = Request(gpus, segment, groups=groups, parallel=plan)
    if racks:
        request, text = replace(request, spread=racks), f"{text}spread: {{racks: {racks}}}\n"
    elif copies > 1:
        request = replace(request, copies=copies)
        text += f"spread: isolate\ncheckpoint: {{dir: c, replicas: {copies - 1}}}\n"
    assert valid(request) == _accepted(text), text


def _accepted(text: str) -> bool:
    from rackyard.errors import SpecError

    try:
        parse_spec(text)
    except SpecError:
        return False
    return True


BLOCKS = simulate(8, 18, racks_per_block=4)
SERVERS = simulate(8, 18, racks_per_block=4, hgx=4)
MIXED = simulate(1, 4, hgx=8)


@pytest.mark.parametrize(
    ("request_", "site", "constraint", "fix"),
    [
        (Request(512, segment_gpus=128), BLOCKS, "domain-size", "`segment: {gpus: 64}` fits now"),
        (Request(32, segment_gpus=16, gpu_kind="H200"), SERVERS, "domain-size", "`segment: {gpus: 8}` fits now"),
        (Request(640, segment_gpus=1), BLOCKS, "site-size", "`gpus: 576` is the most that fits now"),
        (Request(640, segment_gpus=2, domain_gpus=8), BLOCKS, "site-size", "`gpus: 576` is the most that fits now"),
        (Request(36, segment_gpus=2, domain_gpus=8), MIXED, "site-size", "`gpus: 32` is the most that fits now"),
        (Request(128, segment_gpus=4), MIXED, "site-size", "`gpus: 64` is the most that fits now"),
        (Request(64, groups=(Group(32, "block"),)), simulate(1, 12), "site-size", "`gpus: 32` is the most"),
        (
            Request(640, segment_gpus=64, groups=(Group(320, "block", True),)),
            BLOCKS,
            "site-size",
            "`gpus: 512` with `groups: [{gpus: 256, within: block, required: true}]` fits now",
        ),
        (Request(21, segment_gpus=7), BLOCKS, "node-size", "`segment: {gpus: 8}` with `gpus: 24`"),
        (Request(30, segment_gpus=6), BLOCKS, "node-size", "`segment: {gpus: 4}` with `gpus: 28`"),
        (Request(64, gpu_memory=300), BLOCKS, "node-kind", "`gpu_memory: 268.2` fits now"),
        (Request(64, nic_gbps=1600), BLOCKS, "node-kind", "`nic_gbps: 800` fits now"),
        (Request(4, exclude=frozenset({"r1-t5"})), BLOCKS, "exclude", "did you mean r01-t05?"),
        (Request(4, exclude_racks=frozenset({"r1"})), BLOCKS, "exclude", "did you mean r01?"),
        (Request(4, pin=frozenset({"r1-t05"})), BLOCKS, "pin", "did you mean r01-t05?"),
        (
            Request(4, pin=frozenset({"r03-t05"}), exclude_racks=frozenset({"r03"})),
            BLOCKS,
            "pin",
            "`nodes.pin` without r03-t05 fits now, or `nodes.exclude_racks` without r03 fits now",
        ),
        (Request(4, copies=2, pin=frozenset({"r01-t01", "r02-t01"})), BLOCKS, "pin", "`gpus: 8` fits now"),
        (Request(64, copies=10), BLOCKS, "isolate", "`checkpoint: {replicas: 7}` fits now"),
        (Request(4, copies=2), BLOCKS, "isolate", "`gpus: 8` fits now"),
        (Request(144, spread=9), BLOCKS, "spread", "`spread: {racks: 8}` fits now"),
    ],
)
def test_the_smallest_change_is_named(request_: Request, site: Site, constraint: str, fix: str) -> None:
    answer = place(request_, site, Occupancy())
    assert isinstance(answer, Rejection)
    assert answer.constraint == constraint
    assert fix in answer.fix, answer.fix


def test_a_pinned_node_that_cannot_be_had_is_named() -> None:
    answer = place(Request(4, pin=frozenset({"r01-t05"})), BLOCKS.with_cordon({"r01-t05": "fan"}), Occupancy())
    assert isinstance(answer, Rejection)
    assert (answer.constraint, "r01-t05 is cordoned" in answer.summary) == ("pin", True)
    assert answer.fix == "return r01-t05 to service (cordoned: fan), or `nodes.pin` without r01-t05 fits now"
    assert all("pinned" in verdict.detail for verdict in answer.racks)


def test_every_rack_has_the_verdict_of_its_own_nodes() -> None:
    answer = place(Request(10), SERVERS, Occupancy())
    assert isinstance(answer, Rejection)
    told = {verdict.rack: verdict.detail for verdict in answer.racks}
    assert "GB300 nodes of 4" in told["r01"] and "H200 nodes of 8" in told["h01"]
    hardware = place(Request(64, gpu_memory=300), SERVERS, Occupancy())
    assert isinstance(hardware, Rejection)
    assert "gpu_memory: 300, but the GPUs here have 268.2 or 140.4 GiB" in hardware.summary
    spread = place(Request(144, spread=9), BLOCKS, Occupancy())
    assert isinstance(spread, Rejection) and {verdict.binding for verdict in spread.racks} == {"spread"}
