"""The lease: the pure rules, and candidates whose clocks differ, on a stand-in for the API server."""

import contextlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackyard.backends.kubernetes.client import ApiError, Client, Status, Unreachable
from rackyard.backends.kubernetes.election import (
    Acquire,
    Lease,
    Record,
    Renew,
    Seen,
    Timing,
    Wait,
    decide,
    micro_time,
    observe,
    released,
    spec_of,
)
from rackyard.backends.kubernetes.lease import Candidate, Place
from rackyard.errors import RackyardError, UsageError

PLACE = Place("system", "leader")
NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)


def seen(holder: str | None, at: float = 0.0, duration: int | None = 15, transitions: int | None = 3) -> Seen:
    return Seen(Lease(spec=Record(holder, duration, "a", "r", transitions)), at)


@pytest.mark.parametrize(
    ("what", "now", "expected"),
    [
        (None, 0.0, Acquire(0)),
        (seen(None), 0.0, Acquire(4)),
        (seen(""), 0.0, Acquire(4)),
        (seen("", transitions=None), 0.0, Acquire(1)),
        (seen("me"), 1e9, Renew()),
        (seen("other"), 0.0, Wait(15.0)),
        (seen("other", at=100.0), 114.5, Wait(0.5)),
        (seen("other", at=100.0), 115.0, Acquire(4)),
        (seen("other", duration=60), 59.0, Wait(1.0)),
        (seen("other", duration=None), 19.0, Wait(1.0)),
    ],
)
def test_what_a_candidate_does(what: Seen | None, now: float, expected: object) -> None:
    assert decide(what, "me", now, 20) == expected


def test_the_time_starts_anew_with_the_record_only() -> None:
    first = observe(None, Lease(spec=Record("other", renew_time="1")), 5.0)
    assert first.at == 5.0
    assert observe(first, Lease(spec=Record("other", renew_time="1")), 9.0).at == 5.0
    assert observe(first, Lease(spec=Record("other", renew_time="2")), 9.0).at == 9.0


def test_a_year_in_somebody_elses_clock_changes_nothing() -> None:
    old = Seen(Lease(spec=Record("other", 15, "1999-01-01T00:00:00.000000Z", "1999-01-01T00:00:00.000000Z", 0)), 50.0)
    assert decide(old, "me", 51.0, 15) == Wait(14.0)


def test_what_is_written() -> None:
    before = Record("other", 15, "2026-01-01T00:00:00.000000Z", "2026-01-02T00:00:00.000000Z", 7)
    taken = spec_of(Acquire(8), before, "me", 20, NOON)
    assert taken == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 20,
        "renewTime": "2026-11-30T12:00:00.000000Z",
        "acquireTime": "2026-11-30T12:00:00.000000Z",
        "leaseTransitions": 8,
    }
    kept = spec_of(Renew(), before, "me", 20, NOON)
    assert (kept["acquireTime"], kept["leaseTransitions"]) == ("2026-01-01T00:00:00.000000Z", 7)
    assert released(before, NOON)["holderIdentity"] == "" and released(before, NOON)["leaseDurationSeconds"] == 1
    assert micro_time(NOON.astimezone(timezone(timedelta(hours=8)))) == "2026-11-30T12:00:00.000000Z"


@pytest.mark.parametrize("bad", [(10, 10.0, 2.0), (15, 2.0, 2.0), (15, 10.0, 0.0)])
def test_a_timing_that_could_have_two_holders_is_refused(bad: tuple[int, float, float]) -> None:
    with pytest.raises(UsageError, match="no timing"):
        Timing(*bad)


@dataclass
class World:
    """One lease on a server; true time, and what happens while a request is on its way."""

    now: float = 0.0
    stored: dict[str, Any] | None = None
    version: int = 0
    meanwhile: Callable[[], None] = lambda: None
    lose: Callable[[], bool] = lambda: False
    log: list[str] = field(default_factory=list)

    def do(self, method: str, body: Any) -> bytes:
        self.meanwhile()
        if self.lose():
            raise Unreachable("the request was lost")
        answer = getattr(self, method)(body)
        self.meanwhile()
        if self.lose():
            raise Unreachable("the answer was lost")
        return json.dumps(answer).encode()

    def get(self, _: Any) -> Any:
        if self.stored is None:
            raise refusal(404)
        return self.stored

    def post(self, body: Any) -> Any:
        if self.stored is not None:
            raise refusal(409)
        return self.keep(body)

    def put(self, body: Any) -> Any:
        if self.stored is None:
            raise refusal(404)
        if body["metadata"]["resourceVersion"] != self.stored["metadata"]["resourceVersion"]:
            raise refusal(409)
        return self.keep(body)

    def keep(self, body: Any) -> Any:
        self.version += 1
        self.stored = {**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": str(self.version)}}
        self.log.append(body["spec"]["holderIdentity"])
        return json.loads(json.dumps(self.stored))


@dataclass
class StandIn:
    """The client of one candidate."""

    world: World

    def get(self, _path: str, _params: Any, _accept: str) -> bytes:
        return self.world.do("get", None)

    def post(self, _path: str, _params: Any, body: Any) -> bytes:
        return self.world.do("post", body)

    def put(self, _path: str, _params: Any, body: Any) -> bytes:
        return self.world.do("put", body)


def refusal(code: int) -> ApiError:
    return ApiError(str(code), Status(code), where="here")


def candidate(world: World, me: str, rate: float = 1.0, offset: float = 0.0) -> Candidate:
    return Candidate(cast(Client, StandIn(world)), PLACE, me, Timing(), None, lambda: offset + rate * world.now)


def step(one: Candidate) -> None:
    """One try; errors are told and change nothing."""
    with contextlib.suppress(RackyardError):
        one._once()


def test_one_holds_the_other_follows_when_it_ends() -> None:
    world = World()
    a, b = candidate(world, "a"), candidate(world, "b", offset=1e6)
    step(a), step(b)
    assert (a.held, b.held, b.holder) == (True, False, "a")
    world.now = 9.9
    assert a.held
    step(b)
    world.now = 10.0
    assert not a.held  # it has not renewed
    world.now = 14.9
    step(b)
    assert not b.held
    world.now = 15.0
    step(b)
    assert b.held
    step(a)
    assert (a.held, a.holder, world.log) == (False, "b", ["a", "b"])
    assert world.stored is not None and world.stored["spec"]["leaseTransitions"] == 1


def test_the_margin_is_what_it_is_said_to_be() -> None:
    world = World()
    a, b = candidate(world, "a"), candidate(world, "b", 1.49)
    step(a), step(b)
    world.now = 10.0
    step(b)
    assert not a.held and not b.held
    world.now = 10.1  # 15.05 s by the other's clock
    step(b)
    assert b.held


def test_what_others_wrote_into_the_lease_stays() -> None:
    world = World()
    a = candidate(world, "a")
    step(a)
    assert world.stored is not None
    world.stored["metadata"] |= {"labels": {"x": "y"}, "resourceVersion": "77"}
    world.stored["spec"]["strategy"] = "OldestEmulationVersion"
    world.now = 2.0
    step(a)  # 409, then it reads
    assert a.held
    world.now = 4.0
    step(a)
    assert world.stored["metadata"]["labels"] == {"x": "y"}
    assert world.stored["spec"]["strategy"] == "OldestEmulationVersion"
    world.now = 13.9
    assert a.held


@pytest.mark.parametrize("how", ["deleted", "written over"])
def test_taken_away_by_hand_it_is_lost_at_the_next_try(how: str) -> None:
    world = World()
    a = candidate(world, "a")
    step(a)
    assert world.stored is not None
    if how == "deleted":
        world.stored = None
    else:
        world.stored["metadata"]["resourceVersion"] = "77"
        world.stored["spec"]["holderIdentity"] = "admin"
    world.now = 2.0
    step(a)
    assert not a.held
    step(a)
    assert a.held is (how == "deleted")


def test_released_it_is_anybodys_at_once() -> None:
    world = World()
    a, b = candidate(world, "a"), candidate(world, "b")
    step(a), step(b)
    a.release()
    assert not a.held and world.stored is not None and world.stored["spec"]["holderIdentity"] == ""
    step(b)
    assert b.held and world.stored["spec"]["leaseTransitions"] == 1


SPEED = 15 / 10
"""How much faster than another a clock may run: duration / deadline."""


@dataclass
class Play:
    """Two candidates that live at random: what is done while a request is under way is again anything."""

    draw: random.Random
    both: dict[str, Candidate]
    world: World
    who: str = "aabbe"
    left: int = 400
    took: set[str] = field(default_factory=set)
    busy: list[str] = field(default_factory=list)

    def check(self) -> None:
        held = {name for name, one in self.both.items() if one.held}
        assert len(held) < 2
        self.took |= held

    def meanwhile(self) -> None:
        while self.left > 0 and self.draw.random() < 0.6:
            self.move()

    def move(self) -> None:
        self.left -= 1
        self.world.now += self.draw.choice((0.0, 0.1, 0.5, 1.0, 2.0, 4.0))
        self.check()
        name = self.draw.choice(self.who)
        if name == "e" and self.world.stored is not None:  # somebody sets a label
            meta = {**self.world.stored["metadata"], "labels": {"n": str(self.world.version)}}
            self.world.keep({**self.world.stored, "metadata": meta})
        elif name in self.both and name not in self.busy:
            self.busy.append(name)
            step(self.both[name])
            self.busy.remove(name)
        self.check()


@given(st.integers(0, 2**32), st.floats(1 / SPEED, SPEED), st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)))
def test_two_never_hold_at_once(seed: int, rate: float, offsets: tuple[float, float]) -> None:
    """Whatever the clocks say, however long requests and answers take, and whichever of them are lost."""
    world, draw = World(), random.Random(seed)
    both = {"a": candidate(world, "a", 1.0, offsets[0]), "b": candidate(world, "b", rate * 0.999, offsets[1])}
    play = Play(draw, both, world, draw.choice(("aabbe", "abbbbbbbb", "aaaaaaaab")))
    world.meanwhile = play.meanwhile
    world.lose = lambda: draw.random() < 0.1
    while play.left > 0:
        play.move()


def test_in_such_a_play_it_changes_hands() -> None:
    world, draw = World(), random.Random(1)
    play = Play(draw, {"a": candidate(world, "a"), "b": candidate(world, "b")}, world, "ab", 2000)
    world.meanwhile = play.meanwhile
    while play.left > 0:
        play.move()
    assert play.took == {"a", "b"} and world.stored is not None and world.stored["spec"]["leaseTransitions"] > 10
