"""What the controller writes to a cluster. Each write may be repeated, and carries the uid of what it was for."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from lightkube.utils.quantity import parse_quantity

from rackyard.backends.kubernetes.bulk import Answer, Bulk, Write
from rackyard.backends.kubernetes.client import JSON, ApiError, Client
from rackyard.controller.kube import domains
from rackyard.controller.kube.notes import condition_of, event_of
from rackyard.controller.kube.objects import GPU, GROUP, PLURAL, VERSION, GangPlan, PlanSpec, PlanStatus, Pod
from rackyard.controller.kube.plans import body_of, name_of
from rackyard.controller.kube.steps import Patch
from rackyard.errors import RackyardError

PLANS = f"/apis/{GROUP}/{VERSION}"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Taken:
    """A pod to evict: at once where nobody is left on its node who could end it in peace."""

    namespace: str
    name: str
    uid: str
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened to a gang, to be said on its first pod."""

    pod: Pod
    word: str
    line: str
    at: datetime
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Acts:
    """Writes by one client."""

    client: Client
    bulk: Bulk

    def store(self, spec: PlanSpec, first: Pod) -> GangPlan:
        """The plan as stored, also where the one before us did it, or a try whose answer was lost."""
        path = f"{PLANS}/namespaces/{first.metadata.namespace}/{PLURAL}"
        try:
            answer = self.client.post(path, {}, body_of(spec, first))
        except ApiError as error:
            if error.status.code != 409:
                raise
            answer = self.client.get(f"{path}/{name_of(spec)}", {}, JSON)
        stored = msgspec.json.decode(answer, type=GangPlan)
        if (stored.spec.gang, stored.spec.attempt) != (spec.gang, spec.attempt):
            fix = f"kubectl -n {first.metadata.namespace} delete gangplan {name_of(spec)}"
            raise RackyardError(f"GangPlan {name_of(spec)} is of another gang, {stored.spec.gang}", fix=fix)
        return stored

    def mark(self, plan: GangPlan, status: PlanStatus) -> GangPlan:
        """The plan with that status, unless somebody has changed it since: 409 then. What has ended stays ended."""
        path = f"{_path(plan)}/status"
        meta = {"uid": plan.metadata.uid, "resourceVersion": plan.metadata.resource_version}
        body = {"metadata": meta, "status": msgspec.to_builtins(status)}
        answer = self.client.patch(path, {}, JSON, MERGE, body)
        return msgspec.json.decode(answer, type=GangPlan)

    def forget(self, plan: GangPlan) -> None:
        """Delete a plan that is history for long enough."""
        try:
            self.client.delete(_path(plan), {}, {"preconditions": {"uid": plan.metadata.uid}})
        except ApiError as error:
            if error.status.code not in (404, 409):
                raise

    def release(self, patches: Sequence[Patch]) -> tuple[list[Pod], list[RackyardError]]:
        """The pods as they are then, and what went wrong."""
        writes = [
            Write("PATCH", _pod(each.pod, "/status" if each.status else ""), each.body, STRATEGIC) for each in patches
        ]
        answers = self.bulk.send(writes)
        errors = [answer for answer in answers if isinstance(answer, RackyardError)]
        return [msgspec.json.decode(answer, type=Pod) for answer in answers if isinstance(answer, bytes)], errors

    def evict(self, pods: Sequence[Taken], *, try_only: bool = False) -> list[RackyardError | None]:
        """By the Eviction API, which heeds disruption budgets and says so on the pod (DisruptionTarget): a Job whose
        failure policy ignores that counts no failure. What was refused, of each; a pod that is gone was not. With
        `try_only` nothing is done: it is what would be refused.
        """
        return _errors(self.bulk.send([_eviction(pod, try_only) for pod in pods]))

    def note(self, notes: Sequence[Note]) -> list[RackyardError | None]:
        """An Event for each, and the last of each pod as its condition; what went wrong, of each."""
        last = {each.pod.metadata.uid: each for each in notes}
        events = [Write("POST", _events(each.pod), event_of(each.pod, each.word, each.line, each.at)) for each in notes]
        conditions = [
            Write("PATCH", _pod(each.pod, "/status"), condition_of(each.pod, each.word, each.line, each.at), STRATEGIC)
            for each in last.values()
        ]
        errors = _errors(self.bulk.send(events + conditions))
        patched = dict(zip(last, errors[len(notes) :], strict=True))
        return [errors[at] or patched[each.pod.metadata.uid] for at, each in enumerate(notes)]

    def capability(self, queue: str) -> int | None:
        """GPUs that a queue of Volcano may have at most; None for no limit."""
        answer = self.client.get(f"/apis/scheduling.volcano.sh/v1beta1/queues/{queue}", {}, JSON)
        told = msgspec.json.decode(answer, type=_Queue).spec.capability.get(GPU)
        try:
            found = None if told is None else parse_quantity(str(told))
        except ValueError:
            raise RackyardError(f"queue {queue}: capability of {GPU} is {told!r}: expected a number") from None
        return None if found is None else int(found)

    def domain(self, wanted: dict[str, Any]) -> None:
        """Make a ComputeDomain unless it is there. RackyardError where another one is in its way."""
        path = f"/apis/{domains.API}/namespaces/{wanted['metadata']['namespace']}/{domains.PLURAL}"
        try:
            there = msgspec.json.decode(self.client.get(path, {}, JSON))["items"]
        except ApiError as error:
            if error.status.code == 404:
                fix = "install NVIDIA's DRA driver for GPUs"
                raise RackyardError("this cluster has no ComputeDomains", where=path, fix=fix) from None
            raise
        if problem := domains.clash(wanted, there):
            raise RackyardError(problem, where=path)
        if all(each["metadata"]["name"] != wanted["metadata"]["name"] for each in there):
            self.client.post(path, {}, wanted)


class _QueueSpec(msgspec.Struct, frozen=True):
    capability: dict[str, str | int] = {}


class _Queue(msgspec.Struct, frozen=True):
    spec: _QueueSpec = _QueueSpec()


def _eviction(pod: Taken, try_only: bool) -> Write:
    options: dict[str, Any] = {"preconditions": {"uid": pod.uid}}
    if try_only:
        options["dryRun"] = ["All"]
    if pod.at_once:
        options["gracePeriodSeconds"] = 0
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": options,
    }
    # 429 is a budget's answer here: to ask again at once is of no use
    return Write("POST", f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction", body, stubborn=False)


def of_another(error: RackyardError) -> bool:
    """Whether the pod that was meant is gone, or was made anew: of its status, the API server says that with 422."""
    if not isinstance(error, ApiError):
        return False
    code, message = error.status.code, error.status.message
    return code in (404, 409) or (code == 422 and "metadata.uid" in message)


def _errors(answers: Sequence[Answer]) -> list[RackyardError | None]:
    """What went wrong, of each; that a pod is gone is no error."""
    return [answer if isinstance(answer, RackyardError) and not of_another(answer) else None for answer in answers]


def _events(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/events"


def _pod(pod: Pod, part: str = "") -> str:
    return f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}{part}"


def _path(plan: GangPlan) -> str:
    return f"{PLANS}/namespaces/{plan.metadata.namespace}/{PLURAL}/{plan.metadata.name}"
