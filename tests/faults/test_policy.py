"""From a fault to an action."""

from hypothesis import given
from hypothesis import strategies as st

from rackyard.faults import ActionKind, Budget, Cause, Fault, Past, decide

TRAY = Fault(Cause.TRAY, "r01-t02", "compute tray r01-t02 lost", "tray r01-t02", nodes=("r01-t02",))
EXIT = Fault(
    Cause.EXIT, "rank 1", "rank 1 exited with code 1: ValueError: x", "exit 1 ValueError: x", nodes=("r01-t01",)
)
CRASH = Fault(Cause.PROCESS, "rank 1", "rank 1 was ended by SIGSEGV", "process SIGSEGV rank 1", nodes=("r01-t01",))
NVLINK = Fault(Cause.RACK_NVLINK, "r01", "rack r01: NVLink domain is down", "rack-nvlink r01", racks=("r01",))
SPARE = Budget(3, {"r01-t01": ("r01-t03",), "r01-t02": ("r01-t03",)})


def test_a_lost_tray_takes_a_spare_of_its_domain() -> None:
    action = decide(TRAY, (), SPARE)
    assert (action.kind, action.nodes) == (ActionKind.REPLACE_NODES, ("r01-t02",))
    assert "r01-t03" in action.reason


def test_without_a_spare_the_segment_moves() -> None:
    action = decide(TRAY, (), Budget(3, {"r01-t02": ()}))
    assert (action.kind, action.nodes) == (ActionKind.MOVE_SEGMENT, ("r01-t02",))


def test_two_lost_trays_do_not_share_one_spare() -> None:
    two = Fault(Cause.TRAY, "r01-t01", "two", "tray", nodes=("r01-t01", "r01-t02"))
    assert decide(two, (), SPARE).kind is ActionKind.MOVE_SEGMENT


def test_a_dead_domain_moves_the_segment_and_bars_the_rack() -> None:
    action = decide(NVLINK, (), SPARE)
    assert (action.kind, action.racks) == (ActionKind.MOVE_SEGMENT, ("r01",))


def test_the_same_error_three_times_stops() -> None:
    once = Past(EXIT, progressed=False)
    assert decide(EXIT, (), SPARE).kind is ActionKind.RESTART
    assert decide(EXIT, (once,), SPARE).kind is ActionKind.RESTART
    action = decide(EXIT, (once, once), SPARE)
    assert action.kind is ActionKind.STOP
    assert "3 times" in action.reason
    assert action.next_step


def test_progress_between_the_same_errors_starts_the_count_again() -> None:
    assert decide(EXIT, (Past(EXIT, False), Past(EXIT, True)), SPARE).kind is ActionKind.RESTART


def test_a_crash_is_restarted_in_place_and_the_second_on_one_node_replaces_it() -> None:
    assert decide(CRASH, (), SPARE).kind is ActionKind.RESTART
    action = decide(CRASH, (Past(CRASH, True),), SPARE)
    assert (action.kind, action.nodes) == (ActionKind.REPLACE_NODES, ("r01-t01",))


@given(st.sampled_from([TRAY, EXIT, CRASH, NVLINK]), st.integers(max_value=0))
def test_nothing_is_tried_beyond_the_budget(fault: Fault, left: int) -> None:
    assert decide(fault, (), Budget(left, SPARE.spares)).kind is ActionKind.STOP
