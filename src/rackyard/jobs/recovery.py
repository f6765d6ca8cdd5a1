"""What each fault cost: the time to recover, split into its parts, steps lost, and goodput. Pure."""

from dataclasses import dataclass

from rackyard.jobs.state import Attempt, JobState, Moment

PARTS = ("detect", "decide", "stop", "place", "start", "load", "recompute")
"""The parts of a recovery, in order: from the fault to the moment the job is as far again as it ever was."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """One fault, from its strike to the step at which nothing was lost any more. Seconds; None: not reached."""

    attempt: int
    cause: str
    action: str
    parts: dict[str, float | None]
    resumed_step: int
    steps_lost: int
    """Steps that were complete when the fault struck and had to be computed again."""

    @property
    def total(self) -> float | None:
        """Seconds of the whole recovery; None while it goes on."""
        values = list(self.parts.values())
        return None if any(value is None for value in values) else sum(value for value in values if value is not None)


def recoveries(state: JobState) -> tuple[Recovery, ...]:
    """Every fault of the job that was followed by another attempt."""
    found = []
    for before, after in zip(state.attempts, state.attempts[1:], strict=False):
        if before.fault is not None and before.advice is not None:
            found.append(_recovery(before, after))
    return tuple(found)


def _recovery(before: Attempt, after: Attempt) -> Recovery:
    assert before.fault is not None and before.advice is not None  # asked by recoveries()
    # A fault that nobody injected has no known strike: it is counted from its first sign.
    begin = before.struck or before.symptom or before.detected
    first = after.first_step
    # A checkpoint may not report that it was loaded; then loading counts as part of starting.
    started = after.up if after.loaded is None else min(after.up or after.loaded, after.loaded, key=lambda m: m.mono)
    marks = (
        begin,
        before.detected,
        before.advised,
        before.ended,
        after.launched,
        started,
        after.loaded or first,
        after.recovered,
    )
    parts = {part: _between(marks[at], marks[at + 1]) for at, part in enumerate(PARTS)}
    resumed = after.resume_step or 0
    return Recovery(
        before.number,
        before.fault.cause,
        before.advice.action,
        parts,
        resumed,
        max(0, before.step - resumed),
    )


def _between(start: Moment | None, end: Moment | None) -> float | None:
    return None if start is None or end is None else max(0.0, end.mono - start.mono)


def goodput(state: JobState) -> float | None:
    """The share of the job's time, from its first launch to its end, in which steps were made that counted.

    Time between a fault's strike and the moment the job was as far again is lost; so is the first start. None
    while the job runs.
    """
    first = next((attempt.launched for attempt in state.attempts if attempt.launched), None)
    if first is None or state.ended is None:
        return None
    total = state.ended.mono - first.mono
    begun = state.attempts[0].up
    lost = (begun.mono - first.mono) if begun is not None else total
    lost += sum(recovery.total or 0.0 for recovery in recoveries(state))
    return max(0.0, (total - lost) / total) if total > 0 else None
