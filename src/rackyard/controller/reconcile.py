"""What comes next for a job: a pure function of its state, the site and the time.

The loop stores what is returned here and only then acts on it, so that a controller that dies in between finds
its intention when it comes back. Every branch must therefore be safe to repeat.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from rackyard.controller.request import attempts_allowed, request_of
from rackyard.fabric import Health, Node, Site
from rackyard.faults import (
    Action,
    ActionKind,
    AttemptView,
    Budget,
    Cause,
    Fault,
    Past,
    RankView,
    attribute,
    decide,
)
from rackyard.findings import Finding
from rackyard.jobs import events as ev
from rackyard.jobs.state import Attempt, JobState, Phase
from rackyard.launch import refusals
from rackyard.placement import Occupancy, Placement, Rejection, decode, encode, moved_ranks, place, reseat


@dataclass(frozen=True, slots=True)
class World:
    """What a decision about one job may look at."""

    site: Site
    """As it is now: cordoned nodes and dead domains marked."""
    occupancy: Occupancy
    """What other jobs hold."""
    now: float
    """Monotonic seconds."""
    audit: tuple[Finding, ...] = ()
    """What is wrong with the site as it was described."""
    held: str = ""
    """Why it is not the job's turn, where it waits for its first seats."""
    reserved: bool = False
    """Whether seats are kept for it meanwhile."""


@dataclass(frozen=True, slots=True)
class Append:
    """Store these events of the job, and these of the site."""

    events: tuple[ev.JobEvent, ...]
    site: tuple[ev.SiteEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """Look for the newest valid checkpoint and a free port, and launch the attempt."""

    attempt: int


Next = Append | Launch | None


def next_step(state: JobState, world: World, *, quiet: bool) -> Next:
    """The next thing to store or launch; None when there is nothing to do but wait.

    `quiet` says that the backend was asked to stop the attempt and everything it had to say was read since.
    """
    if state.phase.over:
        return None
    attempt = state.attempt
    if attempt is None or attempt.ended is not None:
        return _between(state, attempt, world)
    if attempt.launched is None:
        return _finish(state, "cancelled", "cancelled before it started") if state.cancel else Launch(attempt.number)
    if attempt.stopping is not None:
        return _stopped(attempt) if quiet and _all_down(attempt) else None
    if state.cancel:
        return Append((ev.Stopping(attempt=attempt.number),))
    if attempt.fault is None:
        return _watch(state, attempt, world)
    return _recover(state, attempt, world)


# --- between attempts ------------------------------------------------------------------------------------------


def _between(state: JobState, attempt: Attempt | None, world: World) -> Next:
    if state.cancel:
        return _finish(state, "cancelled", "cancelled on request")
    if attempt is not None and attempt.advice is not None and attempt.advice.action == ActionKind.STOP:
        return _finish(state, "failed", attempt.advice.reason, attempt.advice.next_step)
    if attempt is not None and attempt.fault is not None and _mode(state.spec) == "observe":
        reason = f"{attempt.fault.summary}; advice was not acted on (recover.mode: observe)"
        return _finish(state, "failed", reason, "set `recover: {mode: act}` to let Rackyard recover the job")
    return _place(state, attempt, world)


_QUEUE_FIX = "wait, give the job an `estimate` that ends before, or a higher `priority`"


def _place(state: JobState, attempt: Attempt | None, world: World) -> Next:
    request = request_of(state.spec)
    if attempt is None:
        if world.held:
            return _reject(state, Rejection("queue", world.held, (), _QUEUE_FIX), world)
        answer = place(request, world.site, world.occupancy)
        moved = state.gpus
    else:
        old = decode(dict(attempt.placement))
        lost, racks = unusable(old, world.site)
        answer = reseat(old, lost, racks, request, world.site, world.occupancy)
        moved = len(moved_ranks(old, answer)) if isinstance(answer, Placement) else 0
    if isinstance(answer, Placement):
        # A job that runs already moves to what there is; only one that has not started yet is worth holding back.
        refused = refusals(world.audit, world.site, answer.nodes(), state.accept) if attempt is None else ()
        if refused:
            return _refuse(state, refused)
        number = 1 if attempt is None else attempt.number + 1
        return Append((ev.Placed(attempt=number, placement=encode(answer), moved=moved),))
    return _reject(state, answer, world)


def _refuse(state: JobState, refused: tuple[Finding, ...]) -> Next:
    first = refused[0]
    more = f", and {len(refused) - 1} more" if len(refused) > 1 else ""
    rules = " ".join(f"--accept {rule}" for rule in dict.fromkeys(finding.rule for finding in refused))
    reason = f"the site's audit found an error where it would run: {first.subject}: {first.summary}{more}"
    return _finish(state, "failed", reason, f"{first.advice}; or submit it again with {rules}".removeprefix("; or "))


def fallback_nodes(state: JobState, world: World) -> tuple[str, ...]:
    """The nodes that the job would move to if the racks it runs on went down now; none without `recover.spares`."""
    attempt = state.attempt
    if attempt is None or not state.spec["recover"]["spares"]:
        return ()
    now = decode(dict(attempt.placement))
    racks = frozenset(world.site.node(name).rack for name in now.nodes())
    answer = reseat(now, frozenset(), racks, request_of(state.spec), world.site, world.occupancy)
    return answer.nodes() if isinstance(answer, Placement) else ()


def _reject(state: JobState, answer: Rejection, world: World) -> Next:
    racks = tuple(f"{verdict.rack}: {verdict.binding}: {verdict.detail}" for verdict in answer.racks)
    summary = answer.summary + ("; seats are reserved for it" if world.reserved else "")
    event = ev.Rejected(constraint=answer.constraint, summary=summary, fix=answer.fix, racks=racks)
    if not state.attempts and impossible(state.spec, world.site):
        reason = f"it can never run on this site: {answer.summary}"
        return Append((event, ev.Finished(outcome="failed", reason=reason, next_step=answer.fix)))
    return Append((event,)) if event != state.rejected else None


def impossible(spec: Mapping[str, Any], site: Site) -> bool:
    """Whether the job would not fit even if every node were healthy and free."""
    site = replace(site, nodes=tuple(_mended(node) for node in site.nodes))
    site = site.with_health(nvlink={rack.name: Health.HEALTHY for rack in site.racks})
    return isinstance(place(request_of(spec), site, Occupancy({})), Rejection)


def _mended(node: Node) -> Node:
    """The node with everything on it healthy, and in service."""
    return replace(
        node,
        health=Health.HEALTHY,
        cordoned="",
        gpus=tuple(replace(gpu, health=Health.HEALTHY) for gpu in node.gpus),
        nics=tuple(replace(nic, health=Health.HEALTHY) for nic in node.nics),
    )


def unusable(placement: Placement, site: Site) -> tuple[frozenset[str], frozenset[str]]:
    """The placement's nodes and racks that can't be used any more."""
    nodes = {seat.node for seat in placement.seats}
    lost = {name for name in nodes if site.node(name).cordoned or site.node(name).health is Health.DOWN}
    racks = {site.node(name).rack for name in nodes}
    down = {rack.name for rack in site.racks if rack.name in racks and rack.nvlink is Health.DOWN}
    return frozenset(lost), frozenset(down)


# --- while an attempt runs -------------------------------------------------------------------------------------


def _watch(state: JobState, attempt: Attempt, world: World) -> Next:
    if len(attempt.ranks) == state.gpus and all(
        rank.exit is not None and rank.exit.code == 0 for rank in attempt.ranks.values()
    ):
        done = ev.Finished(outcome="succeeded", reason=f"all {state.gpus} ranks exited with code 0")
        return Append((ev.AttemptEnded(attempt=attempt.number, outcome="succeeded"), done))
    fault = attribute(view_of(state, attempt, world.site), world.now)
    if fault is not None:
        return Append((_detected(attempt.number, fault),))
    return _inject(state, attempt, world.site)


def view_of(state: JobState, attempt: Attempt, site: Site) -> AttemptView:
    """The attempt as attribution needs it."""
    placement = decode(dict(attempt.placement))
    nodes = {seat.node for seat in placement.seats}
    racks = {site.node(name).rack for name in nodes}
    ranks = []
    for seat in placement.seats:
        known = attempt.ranks.get(seat.rank)
        ranks.append(RankView(seat.rank, seat.node, known.step if known else 0, known.exit if known else None))
    moments = (attempt.launched, attempt.up, attempt.loaded, attempt.progressed)
    return AttemptView(
        ranks=tuple(ranks),
        lost_nodes=tuple(event for event in attempt.lost_nodes if event.node in nodes),
        lost_fabric=tuple(event for event in attempt.lost_fabric if event.rack in racks),
        symptom=attempt.symptom.mono if attempt.symptom else None,
        moved=max((moment.mono for moment in moments if moment is not None), default=None),
        first_step_done=attempt.first_step is not None,
        hang_after=float(state.spec["watch"]["hang"]),
    )


def _detected(number: int, fault: Fault) -> ev.FaultDetected:
    return ev.FaultDetected(
        attempt=number,
        cause=fault.cause.value,
        subject=fault.subject,
        summary=fault.summary,
        signature=fault.signature,
        evidence=fault.evidence,
        echoes=fault.echoes,
        nodes=fault.nodes,
        racks=fault.racks,
    )


def _inject(state: JobState, attempt: Attempt, site: Site) -> Next:
    done = {event.fault for event in state.faults_injected}
    if attempt.up is None:
        return None
    for wanted in state.faults_requested:
        due = wanted.at_step is None or (attempt.first_step is not None and attempt.step >= wanted.at_step)
        if wanted.fault not in done and due:
            target = wanted.target or _target(wanted.kind, decode(dict(attempt.placement)), site)
            strike = ev.FaultInjected(fault=wanted.fault, attempt=attempt.number, kind=wanted.kind, target=target)
            return Append((strike,))
    return None


def _target(kind: str, placement: Placement, site: Site) -> str:
    """Where a fault strikes when nobody said: the last rank, its node, or the rack of rank 0."""
    last = placement.seats[-1]
    match kind:
        case "process" | "hang":
            return str(last.rank)
        case "tray":
            return last.node
        case _:
            return site.node(placement.seats[0].node).rack


# --- a fault ---------------------------------------------------------------------------------------------------


def _recover(state: JobState, attempt: Attempt, world: World) -> Next:
    fault = fault_of(attempt)
    if fault is None:
        return None
    if attempt.advice is None:
        action = decide(fault, history_of(state), _budget(state, attempt, world))
        return Append((_advised(attempt.number, action),))
    if _mode(state.spec) == "observe":
        ended = ev.AttemptEnded(attempt=attempt.number, outcome=fault.cause.value)
        return Append((ended,)) if _all_down(attempt) else None
    why = f"{state.job} attempt {attempt.number}: {fault.summary}"
    out = tuple(
        ev.Cordoned(subject=name, why=why, job=state.job) for name in (*attempt.advice.nodes, *attempt.advice.racks)
    )
    return Append((ev.Stopping(attempt=attempt.number, stacks=fault.cause is Cause.HANG),), out)


def _advised(number: int, action: Action) -> ev.Advised:
    return ev.Advised(
        attempt=number,
        action=action.kind.value,
        reason=action.reason,
        next_step=action.next_step,
        nodes=action.nodes,
        racks=action.racks,
    )


def _budget(state: JobState, attempt: Attempt, world: World) -> Budget:
    placement = decode(dict(attempt.placement))
    used = {seat.node for seat in placement.seats}
    spares = {}
    for name in sorted(used):
        domain = world.site.node(name).domain
        spares[name] = tuple(
            node.name
            for node in world.site.nodes_in_domain(domain)
            if node.name not in used
            and not node.cordoned
            and node.health is not Health.DOWN
            and len(world.occupancy.free(node)) == len(node.gpus)
        )
    return Budget(attempts_left=attempts_allowed(state.spec) - attempt.number, spares=spares)


def fault_of(attempt: Attempt) -> Fault | None:
    """The attempt's fault as the policy knows it."""
    event = attempt.fault
    if event is None:
        return None
    return Fault(
        Cause(event.cause),
        event.subject,
        event.summary,
        event.signature,
        event.evidence,
        event.echoes,
        event.nodes,
        event.racks,
    )


def history_of(state: JobState) -> tuple[Past, ...]:
    """The faults of the attempts before, each with whether the job then came further than ever before."""
    past = []
    for before, after in zip(state.attempts, state.attempts[1:], strict=False):
        fault = fault_of(before)
        if fault is not None:
            past.append(Past(fault, progressed=after.recovered is not None and after.step > before.step))
    return tuple(past)


def _stopped(attempt: Attempt) -> Append:
    outcome = attempt.fault.cause if attempt.fault is not None else Phase.CANCELLED.value
    return Append((ev.AttemptEnded(attempt=attempt.number, outcome=outcome),))


def _all_down(attempt: Attempt) -> bool:
    lost = {event.node for event in attempt.lost_nodes}
    return all(
        rank.exit is not None or rank.node in lost for rank in attempt.ranks.values() if rank.started is not None
    )


def _finish(state: JobState, outcome: str, reason: str, next_step: str = "") -> Append:
    return Append((ev.Finished(outcome=outcome, reason=reason, next_step=next_step),))


def _mode(spec: Mapping[str, Any]) -> str:
    return str(spec["recover"]["mode"])
