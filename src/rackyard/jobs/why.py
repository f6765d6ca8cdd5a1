"""One dominant reason, its evidence and the next step, for a job in any phase: pure, from the state alone."""

from dataclasses import dataclass

from rackyard.jobs.state import Attempt, JobState, Phase


@dataclass(frozen=True, slots=True)
class Why:
    """Why a job is where it is."""

    job: str
    phase: str
    reason: str
    evidence: tuple[str, ...] = ()
    next_step: str = ""


def why(state: JobState) -> Why:
    """The answer to `rackyard why JOB`."""
    if state.finished is not None:
        return _over(state)
    if state.cancel:
        reason = f"it is being cancelled (step {state.best_step}); a controller ends what runs of it"
        return Why(state.job, state.phase.value, reason, _history(state), "if nothing happens: `rackyard up`")
    if state.rejected is not None:
        waiting = "waits for a seat" if not state.attempts else "waits for seats to go on"
        reason = f"{waiting}: {state.rejected.summary}"
        return Why(state.job, state.phase.value, reason, state.rejected.racks, state.rejected.fix)
    attempt = state.attempt
    if attempt is not None and attempt.launched is None:
        reason = f"attempt {attempt.number} has its seats and is about to start"
        return Why(state.job, state.phase.value, reason, _history(state), "if nothing happens: `rackyard up`")
    if attempt is None:
        return Why(state.job, state.phase.value, "not looked at yet", (), "start a controller: `rackyard up`")
    if attempt.fault is not None:
        return _broken(state, attempt)
    return _going(state, attempt)


def _over(state: JobState) -> Why:
    finished = state.finished
    assert finished is not None  # asked by why()
    evidence: tuple[str, ...] = ()
    last = state.attempt
    if state.phase is Phase.FAILED and last is not None and last.fault is not None:
        evidence = last.fault.evidence
    elif state.phase is Phase.FAILED and state.rejected is not None:
        evidence = state.rejected.racks
    elif state.phase is Phase.SUCCEEDED:
        evidence = _history(state)
    next_step = finished.next_step or ("nothing to do" if state.phase is Phase.SUCCEEDED else "")
    return Why(state.job, state.phase.value, finished.reason, evidence, next_step)


def _broken(state: JobState, attempt: Attempt) -> Why:
    fault = attempt.fault
    assert fault is not None  # asked by why()
    advice = attempt.advice
    doing = f"; advice: {advice.action}" if advice is not None else "; deciding what to do"
    waits = state.spec["recover"]["mode"] == "observe"
    next_step = "nothing: Rackyard is acting on it" if not waits else "recover.mode is observe: it is for you to act"
    evidence = (*fault.evidence, *(f"echo: {line}" for line in fault.echoes[:4]))
    return Why(state.job, state.phase.value, fault.summary + doing, evidence, next_step)


def _going(state: JobState, attempt: Attempt) -> Why:
    if attempt.first_step is None:
        up = sum(1 for rank in attempt.ranks.values() if rank.started is not None)
        back = f", to resume from step {attempt.resume_step}" if attempt.resume_step else ""
        reason = f"attempt {attempt.number} is starting: {up} of {state.gpus} ranks run{back}"
    else:
        reason = f"attempt {attempt.number} runs: step {attempt.step}"
    return Why(state.job, state.phase.value, reason, _history(state), "nothing to do")


def _history(state: JobState) -> tuple[str, ...]:
    lines = []
    for attempt in state.attempts:
        for segment, way, chosen, _, detail in attempt.placement.get("choices", ()):  # older events have none
            mark = "chosen" if chosen else "not taken"
            lines.append(f"attempt {attempt.number}: segment {segment}, {way}: {mark}: {detail}")
        if attempt.fault is not None:
            action = attempt.advice.action if attempt.advice is not None else "none"
            lines.append(f"attempt {attempt.number}: {attempt.fault.summary} → {action}")
    return (*lines, f"newest step {state.best_step}")
