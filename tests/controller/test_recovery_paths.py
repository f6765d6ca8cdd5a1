"""The toy job through every kind of fault: what is decided, where it goes on and what it loses."""

import socket
import textwrap
from pathlib import Path

import pytest
from yard import finish, open_gate, strike, toy, yard

from rackyard.cli.app import main
from rackyard.cli.session import controller, drive
from rackyard.cli.timeline import line
from rackyard.controller import loop
from rackyard.controller.home import Home
from rackyard.jobs import events as ev
from rackyard.jobs.events import Record
from rackyard.jobs.recovery import recoveries
from rackyard.jobs.state import Attempt, JobState, Phase
from rackyard.jobs.why import why
from rackyard.placement import decode

ONE_TRAY = "simulate: {racks: 1, trays: 1}\n"
LONE_TRAYS = "simulate: {racks: 2, trays: 1}\n"


def racks(attempt: Attempt) -> set[str]:
    return {segment.rack for segment in decode(dict(attempt.placement)).segments}


def actions(state: JobState) -> list[tuple[str, str]]:
    """The cause and the action of each attempt that broke."""
    return [(a.fault.cause, a.advice.action if a.advice else "") for a in state.attempts if a.fault]


def finish_the_second(home: Home, job: str) -> JobState:
    """Be the controller; the toy waits past step 14, so that however late a fault strikes, there is a job to strike."""

    def second(record: Record, state: JobState) -> None:
        if isinstance(record.event, ev.Advised):
            told = why(state)
            assert told.phase == "recovering" and told.reason.endswith(f"; advice: {record.event.action}")
            assert told.next_step == "nothing: Rackyard is acting on it"
        if isinstance(record.event, ev.Launched) and record.event.attempt == 2:
            open_gate(home)

    return drive(home, home.site(), job, second)


def script(home: Home, text: str) -> str:
    """A command that runs `text`."""
    file = home.path.parent / "script.py"
    file.write_text(textwrap.dedent(text))
    return f"python {file}"


def test_a_lost_process_is_restarted_in_place(tmp_path: Path) -> None:
    with yard(tmp_path) as home:
        job = toy(home, gpus=2)
        strike(home, job, ("process", 7))
        state = finish_the_second(home, job)
    assert state.phase is Phase.SUCCEEDED and state.best_step == 20
    assert actions(state) == [("process", "restart-processes")]
    assert state.attempts[1].moved == 0
    assert state.attempts[1].resume_step in (5, 10)
    (cost,) = recoveries(state)
    assert cost.total is not None and cost.total > 0 and cost.steps_lost >= 0


def test_a_hang_is_told_with_stacks_and_restarted(tmp_path: Path) -> None:
    with yard(tmp_path) as home:
        job = toy(home, gpus=2, text="watch: {hang: 2s}\n")
        strike(home, job, ("hang", 7))
        state = finish_the_second(home, job)
    assert state.phase is Phase.SUCCEEDED and state.best_step == 20
    assert actions(state) == [("hang", "restart-processes")]
    first, second = state.attempts
    assert first.fault is not None and "behind: rank 1 on r01-t01" in first.fault.summary
    assert any("toy.py" in stacks.text for stacks in first.stacks if stacks.rank == 1)
    assert second.resume_step == 10 and second.moved == 0


def test_a_switch_tray_moves_the_segment(tmp_path: Path) -> None:
    with yard(tmp_path) as home:
        job = toy(home, gpus=2)
        strike(home, job, ("switch-tray", 6))
        state = finish_the_second(home, job)
    assert state.phase is Phase.SUCCEEDED
    assert actions(state) == [("switch-tray", "move-segment")]
    assert [racks(attempt) for attempt in state.attempts] == [{"r01"}, {"r02"}]
    assert state.attempts[1].moved == 2


def test_without_a_spare_in_the_rack_the_whole_segment_moves(tmp_path: Path) -> None:
    with yard(tmp_path, LONE_TRAYS) as home:
        job = toy(home, gpus=2, text="recover: {spares: 0}\n")
        strike(home, job, ("tray", 6))
        state = finish_the_second(home, job)
    assert state.phase is Phase.SUCCEEDED
    assert actions(state) == [("tray", "move-segment")]
    assert [racks(attempt) for attempt in state.attempts] == [{"r01"}, {"r02"}]
    assert state.attempts[1].resume_step in (5, 10)
    told = [line for line in why(state).evidence if line.startswith("attempt 2: segment 0")]
    assert [line.split(": ")[1:3] for line in told] == [
        ["segment 0, same-domain", "not taken"],
        ["segment 0, other-domain", "chosen"],
        ["segment 0, split", "not taken"],
    ]


def test_with_nowhere_to_go_it_waits_and_goes_on_when_the_tray_returns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with yard(tmp_path, ONE_TRAY) as home:
        job = toy(home, gpus=2, text="recover: {spares: 0}\n")
        strike(home, job, ("tray", 6))
        with controller(home, home.site()) as one:
            while home.store.state(job).rejected is None:
                one.tick()
            waiting = why(home.store.state(job))
            assert waiting.phase == "pending"
            assert waiting.reason.startswith("waits for seats to go on: segment 0 in r01 lost 1 of 1 nodes (r01-t01)")
            assert waiting.next_step.startswith("return 1 node")
            open_gate(home)
            with pytest.raises(SystemExit) as end:
                main(["nodes", "return", "r01-t01", "-y", "--state", str(home.path)])
            assert end.value.code == 0
            while not home.store.state(job).phase.over:
                one.tick()
        state = home.store.state(job)
    assert "r01-t01: returned to service" in capsys.readouterr().out
    assert state.phase is Phase.SUCCEEDED and state.attempts[1].resume_step in (5, 10)


def test_observe_mode_stores_the_advice_and_leaves_it_there(tmp_path: Path) -> None:
    with yard(tmp_path) as home:
        job = toy(home, gpus=1, text="recover: {mode: observe}\n")
        strike(home, job, ("process", 3))
        state = finish(home, job)
    assert state.phase is Phase.FAILED
    assert actions(state) == [("process", "restart-processes")]
    answer = why(state)
    assert "was ended by SIGKILL; advice was not acted on (recover.mode: observe)" in answer.reason
    assert "mode: act" in answer.next_step


def test_the_same_error_three_times_is_the_users(tmp_path: Path) -> None:
    with yard(tmp_path) as home:
        job = toy(home, gpus=1, run=script(home, "raise ValueError('no such layer')"))
        state = finish(home, job)
    assert state.phase is Phase.FAILED
    assert actions(state) == [("exit", "restart-processes")] * 2 + [("exit", "stop")]
    answer = why(state)
    assert answer.reason.startswith("the same error 3 times without a step forward: rank 0")
    assert any("ValueError: no such layer" in text for text in answer.evidence)
    assert "rackyard logs" in answer.next_step


def test_attempts_are_used_up(tmp_path: Path) -> None:
    with yard(tmp_path) as home:
        job = toy(home, gpus=1, text="recover: {attempts: 2}\n")
        strike(home, job, ("process", 3), ("process", 8))
        state = finish(home, job)
    assert state.phase is Phase.FAILED and len(state.attempts) == 2
    assert actions(state) == [("process", "restart-processes"), ("process", "stop")]
    answer = why(state)
    assert answer.reason.startswith("all attempts are used up")
    assert "recover.attempts" in answer.next_step


def test_a_damaged_checkpoint_is_passed_over_aloud(tmp_path: Path) -> None:
    told: list[str] = []
    with yard(tmp_path) as home:
        job = toy(home, gpus=1)
        strike(home, job, ("process", 11))

        def tear(record: Record, _state: JobState) -> None:
            told.append(line(record) or "")
            if isinstance(record.event, ev.FaultDetected):
                (newest,) = (tmp_path / "ckpt").glob("*10/state.json")
                newest.write_bytes(newest.read_bytes()[:3])

            if isinstance(record.event, ev.Launched) and record.event.attempt == 2:
                open_gate(home)

        state = drive(home, home.site(), job, tear)
    assert state.phase is Phase.SUCCEEDED
    second = state.attempts[1]
    assert second.resume_step == 5
    assert len(second.damaged) == 1 and "step 10 is damaged" in second.damaged[0]
    assert any("from checkpoint of step 5; damaged and passed over: " in text for text in told)


def test_a_port_that_is_taken_is_nobodys_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder, yard(tmp_path) as home:
        taken = holder.getsockname()[1]
        ports = iter([taken] * 3)
        free = loop.free_port
        monkeypatch.setattr(loop, "free_port", lambda: next(ports, None) or free())
        rendezvous = "import os, socket\nsocket.create_server(('127.0.0.1', int(os.environ['MASTER_PORT'])))\n"
        state = finish(home, toy(home, gpus=1, run=script(home, rendezvous)))
    assert state.phase is Phase.SUCCEEDED
    # Three times would be the end of it, were it taken for an error of the script.
    assert actions(state) == [("port", "restart-processes")] * 3
    assert [attempt.port == taken for attempt in state.attempts] == [True] * 3 + [False]


def test_cancel_ends_a_script_that_ignores_sigterm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "CANCEL_GRACE", 0.5)
    deaf = """
        import signal, time, rackyard
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        step = 0
        while True:
            step += 1
            rackyard.report_step(step)
            time.sleep(0.05)
    """
    with yard(tmp_path) as home:
        job = toy(home, gpus=1, run=script(home, deaf))

        def tire(record: Record, state: JobState) -> None:
            if state.phase is Phase.RUNNING and not state.cancel:
                home.store.append(job, [ev.CancelRequested()])

        state = drive(home, home.site(), job, tire)
    assert state.phase is Phase.CANCELLED
    (attempt,) = state.attempts
    assert attempt.fault is None
    (exit_,) = attempt.exits
    assert exit_.signal == 9
