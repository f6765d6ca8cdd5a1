"""Killed at any event and started again, the controller reaches the same end."""

from pathlib import Path

import pytest
from yard import die_at, finish, open_gate, strike, toy, yard

from rackyard.jobs.state import JobState, Phase


def essence(state: JobState) -> tuple[object, ...]:
    """What must not depend on when the controller died."""
    causes = tuple(attempt.fault.cause if attempt.fault else attempt.outcome for attempt in state.attempts)
    actions = tuple(attempt.advice.action if attempt.advice else "" for attempt in state.attempts)
    return state.phase, state.best_step, causes, actions


END = (Phase.SUCCEEDED, 20, ("tray", "rack-nvlink", "succeeded"), ("replace-nodes", "move-segment", ""))


def test_uninterrupted(tmp_path: Path) -> None:
    with yard(tmp_path) as home:
        job = toy(home)
        strike(home, job, ("tray", 6), ("rack-nvlink", 12))
        open_gate(home)
        assert essence(finish(home, job)) == END


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_controller_that_dies_at_every_single_event(tmp_path: Path, when: str) -> None:
    """Every incarnation gets one event further, so every event of the job is one at which a controller died."""
    with yard(tmp_path) as home:
        job = toy(home)
        strike(home, job, ("tray", 6), ("rack-nvlink", 12))
        deaths = 0
        while (code := die_at(home, job, 1 if when == "after" else 2, when)) != 0:
            assert code == -9
            deaths += 1
            assert deaths < 60
            attempt = home.store.state(job).attempt
            if attempt is not None and attempt.number == 3:
                open_gate(home)
        assert deaths >= 20
        assert essence(home.store.state(job)) == END
