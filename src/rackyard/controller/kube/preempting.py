"""Who gives way to a gang of higher priority that finds no seat. Pure.

Gangs go as a whole, and so do pods of a gang that is left alone; other pods one by one.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rackyard.controller.kube.gangs import Gang
from rackyard.controller.kube.kinds import gang_name
from rackyard.controller.kube.objects import Pod
from rackyard.controller.kube.yards import Start, Yards, asked, decision_of, seats_of, seconds
from rackyard.placement import Columns, Decision, Request
from rackyard.placement.queue import Gang as Waiting
from rackyard.placement.queue import Policy, QueueState, Running
from rackyard.placement.queue import plan as queue_plan

PREEMPTING = Policy(exempt=0, worth=0)
"""As the cluster's scheduler does it: at once, whenever a lower priority is in the way."""


def party_of(pod: Pod, planned: Collection[str]) -> str:
    """Whom the pod gives way together with: its gang, by its key where it has a plan; a pod of no gang goes alone."""
    gang = gang_name(pod)
    if not gang:
        return f"pod {pod.key}"
    key = f"{pod.metadata.namespace}/{gang}"
    return key if key in planned else f"pods of {key}"


@dataclass(frozen=True, slots=True)
class Party:
    """Somebody on seats, and the pods that would have to go."""

    run: Running
    pods: tuple[Pod, ...]


def running(yards: Yards, above: Gang | None) -> list[Party]:
    """Gangs on their seats; with `above`, others' pods too, and of all only those that may give way to it."""
    found = []
    for key, (gang, plan) in sorted(yards.planned.items()):
        decision = decision_of(plan, yards.columns)
        if decision is None or (above is not None and not _yields(gang.priority, gang.queue, above)):
            continue
        if above is not None and key in yards.spared:
            continue
        run = Running(replace(asked(gang, yards), name=key), decision, seconds(plan.metadata.creation_timestamp))
        found.append(Party(run, gang.pods))
    return found if above is None else found + _strangers(yards, above)


def _strangers(yards: Yards, above: Gang) -> list[Party]:
    """Pods of no plan that may give way: one by one, but those of a gang that is left alone all together. Those that go
    anyway do so for somebody else.
    """
    parties: dict[str, list[tuple[Pod, tuple[int, ...]]]] = {}
    going = {victim.uid for _, plan in yards.planned.values() for victim in plan.spec.victims}
    for pod, gpus in yards.held.alone.values():
        if pod.metadata.deletion_timestamp or pod.metadata.uid in going:
            continue
        parties.setdefault(party_of(pod, yards.planned), []).append((pod, gpus))
    found = []
    for name, party in parties.items():
        pods, count = tuple(pod for pod, _ in party), sum(len(gpus) for _, gpus in party)
        priority = max(pod.spec.priority for pod in pods)
        queue = "of Volcano" if pods[0].spec.scheduler_name == "volcano" else ""  # which one is not known
        if not count or name in yards.spared or not _yields(priority, queue, above):
            continue
        waiting = Waiting(name, Request(gpus=count), priority=priority)
        since = min(pod.metadata.creation_timestamp for pod in pods)
        found.append(Party(Running(waiting, _alone(party, yards.columns), seconds(since)), pods))
    return found


def _yields(priority: int, queue: str, to: Gang) -> bool:
    return priority < to.priority and (not queue or not to.queue or queue == to.queue)


def preempts(gang: Gang) -> bool:
    """Whether others may be made to give way to it."""
    return gang.displaces and gang.pods[0].spec.preemption_policy != "Never"


def preemption(gangs: Sequence[Gang], yards: Yards, now: float) -> Start | None:
    """Seats for the first of the gangs that finds enough that may give way. One that Volcano's queue keeps out is among
    them: to Volcano the cluster is full, and it lets nobody in for whom others would have to go.
    """
    for gang in gangs:
        runs = {each.run.gang.name: each for each in running(yards, gang)}
        if not runs or not _may_enter(gang, yards):
            continue
        state = QueueState((asked(gang, yards),), tuple(each.run for each in runs.values()))
        made = queue_plan(now, state, yards.without(gang.key).yard(), PREEMPTING)
        for found in made.preemptions:
            pods = tuple(pod for name in found.victims for pod in runs[name].pods)
            victims = tuple(name for name in found.victims if name in yards.planned)
            return Start(gang, seats_of(found.decision, gang, yards), victims, pods)
    return None


def _may_enter(gang: Gang, yards: Yards) -> bool:
    """Whether its queue could let it in once all that yield to it are gone: nobody is displaced in vain."""
    most = yards.capability.get(gang.queue)
    if not gang.kept_out or most is None:
        return True
    firm = [each for each, _ in yards.planned.values() if each.queue == gang.queue and each.priority >= gang.priority]
    return sum(each.request.gpus for each in firm) + gang.request.gpus <= most


def _alone(party: Sequence[tuple[Pod, tuple[int, ...]]], columns: Columns) -> Decision:
    """Pods of no plan as numbers, each of their nodes a segment of its own."""
    masks: dict[int, int] = {}
    for pod, gpus in party:
        if not gpus:  # more was promised on its node than there is
            continue
        node = columns.index[pod.spec.node_name]
        masks[node] = masks.get(node, 0) | sum(1 << gpu for gpu in gpus)
    nodes, taken = np.array([*masks], np.int32), np.array([*masks.values()], np.uint32)
    return Decision(nodes, taken, (1,) * len(masks), np.zeros(0, np.int32), (), np.zeros(0, np.uint32))
