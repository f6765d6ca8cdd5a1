"""A job's state is the fold of its events, and `why` and the recovery times follow from it."""

from collections.abc import Sequence

import pytest

from rackyard.fabric import simulate
from rackyard.faults import observations as seen
from rackyard.jobs import events as ev
from rackyard.jobs.events import KINDS, Event, Record, decode, encode
from rackyard.jobs.recovery import goodput, recoveries
from rackyard.jobs.state import JobState, Phase, fold
from rackyard.jobs.why import why
from rackyard.placement import Occupancy, Placement, Request, place
from rackyard.placement import encode as encode_placement
from rackyard.report import Extra, render


def seats() -> dict[str, object]:
    answer = place(Request(gpus=2, segment_gpus=2, gpus_per_node=2), simulate(racks=1, trays=2), Occupancy({}))
    assert isinstance(answer, Placement)
    return encode_placement(answer)


def stream(*timed: tuple[float, Event]) -> list[Record]:
    return [
        Record(stream="j-1", seq=seq, wall=1000.0 + mono, mono=mono, event=event)
        for seq, (mono, event) in enumerate(timed, 1)
    ]


def at(mono: float) -> dict[str, float]:
    return {"wall": 1000.0 + mono, "mono": mono}


def up(attempt: int, mono: float) -> list[tuple[float, Event]]:
    return [
        (
            mono,
            seen.RankStarted(job="j-1", attempt=attempt, rank=r, node="r01-t01", pid=10 + r, forked=True, **at(mono)),
        )
        for r in (0, 1)
    ]


SPEC = {"name": "j", "gpus": 2, "run": "true", "recover": {"attempts": 5, "mode": "act"}}
BEGIN: list[tuple[float, Event]] = [
    (0.0, ev.Submitted(job="j-1", spec=SPEC, workdir="/w", site="d")),
    (1.0, ev.Placed(attempt=1, placement=seats(), moved=2)),
    (1.0, ev.Launched(attempt=1, resume_step=None, port=1)),
    *up(1, 2.0),
    (3.0, ev.Progress(attempt=1, steps={0: 10, 1: 10}, points=((10, {"loss": 0.5}),))),
]
FAULT: list[tuple[float, Event]] = [
    (5.0, ev.FaultInjected(fault=1, attempt=1, kind="process", target="1")),
    (5.2, seen.RankExited(job="j-1", attempt=1, rank=1, node="r01-t01", code=None, signal=9, **at(5.2))),
    (
        5.5,
        ev.FaultDetected(
            attempt=1, cause="process", subject="rank 1", summary="rank 1 was ended by SIGKILL", signature="s"
        ),
    ),
    (5.6, ev.Advised(attempt=1, action="restart-processes", reason="in place", next_step="")),
    (5.6, ev.Stopping(attempt=1)),
    (6.0, seen.RankExited(job="j-1", attempt=1, rank=0, node="r01-t01", code=None, signal=15, **at(6.0))),
    (6.0, ev.AttemptEnded(attempt=1, outcome="process")),
    (6.1, ev.Placed(attempt=2, placement=seats(), moved=0)),
    (6.2, ev.Launched(attempt=2, resume_step=8, port=2)),
]
AGAIN: list[tuple[float, Event]] = [
    *up(2, 6.5),
    (7.0, seen.Resumed(job="j-1", attempt=2, rank=0, step=8, seconds=0.4, **at(7.0))),
    (8.0, ev.Progress(attempt=2, steps={0: 9, 1: 9}, points=((9, {"loss": 0.6}),))),
    (9.0, ev.Progress(attempt=2, steps={0: 10, 1: 10}, points=((10, {"loss": 0.5}),))),
    (11.0, ev.Finished(outcome="succeeded", reason="all 2 ranks exited with code 0")),
]


def state(*parts: Sequence[tuple[float, Event]]) -> JobState:
    found = fold(stream(*(timed for part in parts for timed in part)))
    assert found is not None
    return found


def test_a_running_job() -> None:
    found = state(BEGIN)
    assert (found.phase, found.best_step, found.metrics) == (Phase.RUNNING, 10, {"loss": 0.5})
    assert why(found).reason == "attempt 1 runs: step 10"


def test_a_job_that_recovers_says_from_what_and_what_is_done() -> None:
    found = state(BEGIN, FAULT[:5])
    assert found.phase is Phase.RECOVERING
    assert "SIGKILL" in why(found).reason
    assert "restart-processes" in why(found).reason


def test_a_recovery_is_split_without_gaps() -> None:
    (cost,) = recoveries(state(BEGIN, FAULT, AGAIN))
    expected = {"detect": 0.5, "decide": 0.1, "stop": 0.4, "place": 0.2, "start": 0.3, "load": 0.5, "recompute": 2.0}
    assert cost.parts == pytest.approx(expected)
    assert cost.total == pytest.approx(4.0)  # from the strike at 5 s to step 10 again at 9 s
    assert (cost.resumed_step, cost.steps_lost) == (8, 2)


def test_an_unfinished_recovery_has_no_total() -> None:
    (cost,) = recoveries(state(BEGIN, FAULT))
    assert cost.total is None
    assert cost.parts["recompute"] is None


def test_goodput_leaves_out_the_start_and_the_recovery() -> None:
    assert goodput(state(BEGIN)) is None
    assert goodput(state(BEGIN, FAULT, AGAIN)) == pytest.approx((10.0 - 1.0 - 4.0) / 10.0)


def test_a_wall_clock_that_jumps_changes_no_duration() -> None:
    records = stream(*BEGIN, *FAULT, *AGAIN)
    jumped = [
        Record(stream=r.stream, seq=r.seq, wall=r.wall - 86400 * (r.seq % 3), mono=r.mono, event=r.event)
        for r in records
    ]
    one, two = fold(records), fold(jumped)
    assert one is not None
    assert two is not None
    assert recoveries(one) == recoveries(two)


def test_the_first_event_must_be_the_submission() -> None:
    with pytest.raises(ValueError, match="not Submitted"):
        fold(stream((0.0, ev.CancelRequested())))


def test_every_event_survives_storing() -> None:
    for _, event in (*BEGIN, *FAULT, *AGAIN):
        assert decode(type(event).__name__, encode(event)) == event


def test_replaying_on_another_machine_gives_the_same_why() -> None:
    records = stream(*BEGIN, *FAULT, *AGAIN)
    again = [
        Record(
            stream=r.stream,
            seq=r.seq,
            wall=r.wall,
            mono=r.mono,
            event=decode(type(r.event).__name__, encode(r.event)),
        )
        for r in records
    ]
    one, two = fold(records), fold(again)
    assert one is not None
    assert two is not None
    assert (one, why(one)) == (two, why(two))


def test_every_kind_has_its_own_name() -> None:
    assert all(KINDS[name].__name__ == name for name in KINDS)
    assert seen.StepDone not in KINDS.values()


def test_the_report_shows_what_happened_and_fetches_nothing() -> None:
    page = render(stream(*BEGIN, *FAULT, *AGAIN), simulate(racks=1, trays=2), Extra(timeline=("<b>x</b>",)))
    assert "rank 1 was ended by SIGKILL" in page
    assert "simulated" in page
    assert "&lt;b&gt;x" in page
    assert "http" not in page
