"""Jobs that wait: by priority, then by age, with room kept for those at the front."""

from dataclasses import replace
from pathlib import Path

from yard import finish, open_gate, toy, yard

from rackyard.cli.session import drive
from rackyard.controller.seats import occupancy_of
from rackyard.controller.waiting import Turns, turns, waits
from rackyard.fabric import Site, simulate
from rackyard.jobs.specfile import parse_spec
from rackyard.jobs.state import Attempt, JobState, Moment, Phase
from rackyard.jobs.why import why
from rackyard.placement import Occupancy, Placement, Request, encode, place

SITE = simulate(1, 4)
NOW = 1000.0


def job(name: str, gpus: int, submitted: float = 0.0, text: str = "") -> JobState:
    spec = parse_spec(f"name: {name}\nrun: 'true'\ngpus: {gpus}\n{text}").to_dict()
    return JobState(name, spec, "/w", Moment(submitted, submitted))


def running(state: JobState, site: Site, *before: JobState) -> JobState:
    """The job in its seats, since its submission."""
    occupancy = Occupancy()
    for other in before:
        occupancy = occupancy.joined(Occupancy({node: frozenset(range(4)) for node in nodes(other)}))
    seats = place(Request(state.gpus), site, occupancy)
    assert isinstance(seats, Placement)
    return replace(state, attempts=(Attempt(1, encode(seats), state.gpus, state.submitted),))


def nodes(state: JobState) -> list[str]:
    assert state.attempt is not None
    return [name for segment in state.attempt.placement["segments"] for name in segment["nodes"]]


def test_more_priority_first_then_the_older() -> None:
    jobs = [job("c", 4, 3.0), job("b", 4, 2.0), job("urgent", 4, 9.0, "priority: 5\n"), job("a", 4, 2.0)]
    assert turns(jobs, SITE, (), NOW).order == ("urgent", "a", "b", "c")


def test_room_is_kept_for_the_first_that_waits() -> None:
    half = running(job("half", 8, 0.0, "estimate: 2000s\n"), SITE)
    whole, short = job("whole", 16, 1.0), job("short", 4, 2.0, "estimate: 900s\n")
    long, open_end = job("long", 4, 3.0, "estimate: 1100s\n"), job("open", 4, 4.0)
    found = turns([half, whole, short, long, open_end], SITE, (), NOW)
    assert found.order[0] == "short", "it ends before half of the rack is free for the whole"
    assert found.held == {
        "long": "it would run past its estimate into the seats that are reserved for whole",
        "open": "it has no estimate, and what is free is reserved for whole",
    }
    assert not found.kept["short"].used and len(found.kept["long"].used) == 4
    assert found.kept["open"].owners["r01-t04"] == ("a reservation of whole",)
    assert [each.start for each in found.reservations if each.gang == "whole"] == [2000.0]


def test_reservations_last_from_round_to_round() -> None:
    half = running(job("half", 8, 0.0, "estimate: 2000s\n"), SITE)
    jobs = [half, job("whole", 16, 1.0, "estimate: 50s\n")]
    one = turns(jobs, SITE, (), NOW)
    two = turns([*jobs, job("more", 16, 5.0)], SITE, one.reservations, NOW + 10)
    assert [(each.gang, each.start) for each in two.reservations] == [("whole", 2000.0), ("more", 2050.0)]


def test_who_runs_or_is_cancelled_does_not_wait() -> None:
    here = running(job("here", 4), SITE)
    gone, over = replace(job("gone", 4), cancel=True), replace(job("over", 4), phase=Phase.FAILED)
    assert not any(waits(state) for state in (here, gone, over))
    assert turns([here, gone], SITE, (), NOW) == Turns(order=(), held={}, kept={}, reservations=())


def test_on_a_real_site_the_urgent_job_goes_first(tmp_path: Path) -> None:
    with yard(tmp_path, "simulate: {racks: 1, trays: 1}\n") as home:
        open_gate(home)
        first = toy(home, gpus=4, text="recover: {spares: 0}\n")
        late = toy(home, gpus=2, steps=2, text="recover: {spares: 0}\n")
        urgent = toy(home, gpus=4, steps=2, text="recover: {spares: 0}\npriority: 9\n")
        assert finish(home, late).phase is Phase.SUCCEEDED
        placed = [home.store.state(name).attempts[0].placed.wall for name in (urgent, first, late)]
    assert placed == sorted(placed)


def test_a_job_that_is_held_back_says_for_whom(tmp_path: Path) -> None:
    with yard(tmp_path, "simulate: {racks: 1, trays: 2}\n") as home:
        first = toy(home, gpus=4, text="recover: {spares: 0}\n")
        whole = toy(home, gpus=8, steps=2, text="recover: {spares: 0}\n")
        small = toy(home, gpus=2, steps=2, text="recover: {spares: 0}\n")
        told = []

        def look(_record: object, _state: object) -> None:
            if home.store.state(small).rejected is not None and not told:
                told.append(why(home.store.state(small)))
                open_gate(home)

        drive(home, home.site(), first, look)
        assert finish(home, small).phase is Phase.SUCCEEDED
        assert home.store.state(whole).phase is Phase.SUCCEEDED
    (answer,) = told
    assert answer.reason == f"waits for a seat: it has no estimate, and what is free is reserved for {whole}"
    assert answer.next_step.startswith("wait, give the job an `estimate`")


def test_apart_takes_a_jobs_name_as_well_as_its_id() -> None:
    site = simulate(2, 2)
    one = replace(running(job("one", 4), site), job="one-1a2b")
    occupancy = occupancy_of([one], site)
    for apart in ("one", "one-1a2b"):
        seats = place(Request(4, apart=frozenset({apart})), site, occupancy)
        assert isinstance(seats, Placement) and seats.nodes() == ("r02-t01",)
