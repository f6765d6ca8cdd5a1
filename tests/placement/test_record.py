"""A stored decision is made again, anywhere, with the same answer."""

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from test_properties import requests, worlds

from rackyard.errors import UsageError
from rackyard.fabric import Site, simulate
from rackyard.placement import Group, Occupancy, Parallel, Request, place
from rackyard.placement.record import again, answer_of, record, request_data, request_from


@given(worlds(), requests())
def test_the_same_case_gives_the_same_answer(world: tuple[Site, Occupancy], request: Request) -> None:
    site, occupancy = world
    case = json.loads(json.dumps(record(request, site, occupancy, place(request, site, occupancy))))
    assert again(case, site) == answer_of(case)


def test_every_field_of_a_request_survives() -> None:
    request = Request(
        64,
        segment_gpus=16,
        groups=(Group(32, "block", required=True),),
        parallel=Parallel(tp=4, pp=2),
        pin=frozenset({"a", "b"}),
        apart=frozenset({"other"}),
        gpu_memory=180.0,
    )
    assert request_from(json.loads(json.dumps(request_data(request)))) == request


def test_another_site_is_refused() -> None:
    site = simulate(1)
    case = record(Request(8), site, Occupancy(), place(Request(8), site, Occupancy()))
    with pytest.raises(UsageError, match="another site"):
        again(case, site.with_cordon({"r01-t01": "fan"}))


@pytest.mark.parametrize(
    "damage",
    [
        {},
        {"rackyard-placement": 9},
        {"used": 4},
        {"request": {"gpus": 0}},
        {"request": {"gpus": 4, "color": 1}},
        {"request": {"gpus": 4, "rails": "foo"}},
        {"request": {"gpus": 4, "spread": "foo"}},
        {"request": {"gpus": 8, "groups": [{"gpus": 4, "within": "xx"}]}},
        {"request": {"gpus": 8, "parallel": {"tp": 0}}},
        {"used": {"r01-t01": [77]}},
        {"site": None},
        {"answer": None},
    ],
)
def test_what_is_no_case_is_refused(damage: dict[str, Any]) -> None:
    site = simulate(1)
    case = record(Request(8), site, Occupancy(), place(Request(8), site, Occupancy()))
    read = answer_of if "answer" in damage else partial(again, site=site)
    with pytest.raises(UsageError, match="no placement case"):
        read({**case, **damage} if damage else {})
