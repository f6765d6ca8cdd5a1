"""A stand-in for a cluster, in this process: an API server that knows what the gang loop writes, a scheduler, and
controllers that make pods anew. It may be killed at any write, and watches that it breaks no rule of a gang.
"""

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from rackyard.backends.kubernetes.bulk import Write
from rackyard.backends.kubernetes.client import ApiError, Status
from rackyard.backends.kubernetes.watch import Gone, Key
from rackyard.controller.kube.acts import Acts
from rackyard.controller.kube.cache import Cache
from rackyard.controller.kube.objects import (
    ATTEMPT,
    FAULT,
    GANG,
    GATE,
    GPU,
    REQUEST,
    SEATS,
    SIZE,
    GangPlan,
    Mark,
    Node,
    Pod,
    PodGroup,
)
from rackyard.controller.kube.rounds import Round
from rackyard.fabric import Site

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
Object = dict[str, Any]


class Killed(BaseException):
    """The controller was killed."""


def refusal(code: int, message: str = "no") -> ApiError:
    return ApiError(f"{code}", Status(code=code, reason="Refused", message=message), where="here")


@dataclass
class Server:
    """`kill`: so many writes go through, and at the next one the controller dies."""

    site: Site
    nodes: dict[str, Object] = field(default_factory=dict)
    pods: dict[str, Object] = field(default_factory=dict)
    """By name: all are in namespace `ml`."""
    plans: dict[str, Object] = field(default_factory=dict)
    groups: dict[str, Object] = field(default_factory=dict)
    sets: dict[str, Object] = field(default_factory=dict)
    """Templates by the name of the pod, which is made anew from it whenever it is gone."""
    events: list[tuple[str, str, str]] = field(default_factory=list)
    budget: set[str] = field(default_factory=set)
    """Pods that a disruption budget protects."""
    writes: list[str] = field(default_factory=list)
    kill: int | None = None
    racing: bool = False
    """Whether there are two controllers, or people who take plans away."""
    grace: bool = False
    """Whether evicted pods stay, terminating, until `leave`."""
    refuse: dict[str, str] = field(default_factory=dict)
    """Nodes that the scheduler binds nothing to, and its words."""
    now: datetime = START
    _version: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        for node in self.site.nodes:
            status = {
                "allocatable": {GPU: str(len(node.gpus))},
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": f"10.0.0.{len(self.nodes)}"}],
            }
            meta = self._meta({"name": node.name, "annotations": {}}, "")
            self.nodes[node.name] = {"metadata": meta, "spec": {}, "status": status}

    # --- what the controller writes ---------------------------------------------------------------------------

    def post(self, path: str, params: Mapping[str, str], body: Any) -> bytes:
        return self._write("POST", path, body)

    def patch(self, path: str, params: Mapping[str, str], accept: str, kind: str, body: Any) -> bytes:
        return self._write("PATCH", path, body)

    def delete(self, path: str, params: Mapping[str, str], body: Any = None) -> bytes:
        return self._write("DELETE", path, body)

    def get(self, path: str, params: Mapping[str, str], accept: str) -> bytes:
        name = path.rpartition("/")[2]
        if name not in self.plans:
            raise refusal(404)
        return msgspec.json.encode(self.plans[name])

    def send(self, writes: Sequence[Write]) -> list[bytes | ApiError]:
        """As `Bulk.send`."""
        answers: list[bytes | ApiError] = []
        for each in writes:
            try:
                answers.append(self._write(each.method, each.path, each.body))
            except ApiError as error:
                answers.append(error)
        return answers

    def _write(self, method: str, path: str, body: Any) -> bytes:
        if isinstance(body, dict) and body.get("deleteOptions", {}).get("dryRun"):
            return self._do(method, path, json_of(body))
        if self.kill is not None and len(self.writes) >= self.kill:
            raise Killed
        self.writes.append(f"{method} {path.removeprefix('/api/v1/namespaces/ml/')}")
        return self._do(method, path, json_of(body))

    def _do(self, method: str, path: str, body: Any) -> bytes:
        parts = path.split("/")
        if parts[-1] == "events":
            self.events.append((body["involvedObject"]["name"], body["reason"], body["message"]))
            return b"{}"
        if "gangplans" in parts:
            return msgspec.json.encode(self._plan(method, parts, body))
        name = parts[parts.index("pods") + 1]
        if name not in self.pods:
            raise refusal(404)
        pod = self.pods[name]
        if parts[-1] == "eviction":
            return self._evict(name, body["deleteOptions"])
        if body.get("metadata", {}).get("uid", pod["metadata"]["uid"]) != pod["metadata"]["uid"]:
            raise refusal(409, "uid")
        if parts[-1] == "status":
            pod["status"] = _merged(pod["status"], body["status"])
        else:
            self._change(pod, body)
        self._touch(pod)
        return msgspec.json.encode(pod)

    def _plan(self, method: str, parts: list[str], body: Any) -> Object:
        if method == "POST":
            name = body["metadata"]["name"]
            if name in self.plans:
                raise refusal(409)
            meta = self._meta(body["metadata"], "ml")
            self.plans[name] = {"metadata": meta, "spec": body["spec"]}
            self._one_plan()
            return self.plans[name]
        name = parts[parts.index("gangplans") + 1]
        plan = self.plans.get(name)
        if plan is None:
            raise refusal(404)
        if method == "DELETE":
            return self.plans.pop(name)
        for key in ("uid", "resourceVersion"):
            if body["metadata"].get(key, plan["metadata"][key]) != plan["metadata"][key]:
                raise refusal(409, key)
        assert len(body["status"].get("message", "")) <= 4096
        plan["status"] = {**plan.get("status", {}), **body["status"]}
        self._touch(plan)
        self._one_plan()
        return plan

    def _evict(self, name: str, options: Object) -> bytes:
        pod = self.pods[name]
        if options["preconditions"]["uid"] != pod["metadata"]["uid"]:
            raise refusal(409, "uid")
        if name in self.budget:
            raise refusal(429, "Cannot evict pod as it would violate the pod's disruption budget.")
        if options.get("dryRun"):
            return b"{}"
        if self.grace and pod["spec"].get("nodeName") and options.get("gracePeriodSeconds") != 0:
            pod["metadata"]["deletionTimestamp"] = _stamp(self.now)
            self._touch(pod)
        else:
            del self.pods[name]
        return b"{}"

    def _change(self, pod: Object, body: Any) -> None:
        spec, was = pod["spec"], bool(pod["spec"]["schedulingGates"])
        pod["metadata"]["annotations"].update(body["metadata"].get("annotations", {}))
        if "spec" not in body:
            return
        if not was and spec.get("affinity") != body["spec"]["affinity"]:
            raise refusal(422, "pod updates may not change fields other than ...")
        self._planned(pod, body)
        spec["affinity"] = body["spec"]["affinity"]
        out = [each["name"] for each in body["spec"]["schedulingGates"]]
        spec["schedulingGates"] = [gate for gate in spec["schedulingGates"] if gate["name"] not in out]

    # --- rules that are kept at every write -----------------------------------------------------------------------

    def _one_plan(self) -> None:
        for gang in {plan["spec"]["gang"] for plan in self.plans.values()}:
            going = [plan["metadata"]["name"] for plan in self.of(gang) if phase(plan) != "Ended"]
            assert len(going) <= 1, f"two plans go on: {going}"

    def _planned(self, pod: Object, body: Any) -> None:
        """Nothing is let go that no stored plan that goes on speaks of; a second controller may know an old one."""
        if self.racing:
            return
        gang = pod["metadata"]["labels"].get(GANG) or pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"]
        plan = self.of(gang)[-1]
        members = {each["uid"]: each["node"] for each in plan["spec"]["members"]}
        terms = body["spec"]["affinity"]["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"]
        assert phase(plan) != "Ended" and members[pod["metadata"]["uid"]] == terms[0]["matchFields"][-1]["values"][0]
        assert body["metadata"]["annotations"][ATTEMPT] == str(plan["spec"]["attempt"])

    # --- what others do -------------------------------------------------------------------------------------------

    def add(self, gang: str, size: int, request: str = "{}", **more: Any) -> None:
        """A gang of gated pods that take a tray each and are made anew when they go."""
        for number in range(size):
            annotations = {SIZE: str(size), REQUEST: request} | more.get("annotations", {})
            spec = {
                "schedulingGates": [{"name": GATE}],
                "schedulerName": more.get("scheduler", "default-scheduler"),
                "priority": more.get("priority", 0),
                "preemptionPolicy": more.get("policy", "PreemptLowerPriority"),
                "containers": [{"resources": {"limits": {GPU: str(more.get("gpus", 4))}}}],
            }
            meta = {"name": f"{gang}-{number}", "labels": {GANG: gang}, "annotations": annotations}
            self.sets[f"{gang}-{number}"] = {"metadata": meta, "spec": spec, "status": {}}
        self.remake()

    def foreign(self, name: str, node: str, priority: int = 0, gpus: int = 4) -> None:
        """A pod of nobody's, on its node."""
        spec = {
            "nodeName": node,
            "priority": priority,
            "schedulingGates": [],
            "containers": [{"resources": {"limits": {GPU: str(gpus)}}}],
        }
        meta = self._meta({"name": name, "labels": {}, "annotations": {}}, "ml")
        self.pods[name] = {"metadata": meta, "spec": spec, "status": {"phase": "Running"}}

    def withdraw(self, gang: str) -> None:
        for name in [name for name in self.sets if name.rpartition("-")[0] == gang]:
            del self.sets[name]
            self.pods.pop(name, None)

    def remake(self) -> None:
        """Pods that are gone are made anew."""
        for name, template in self.sets.items():
            if name not in self.pods:
                made = copy.deepcopy(template)
                made["metadata"] = self._meta(made["metadata"], "ml")
                self.pods[name] = made

    def leave(self) -> None:
        """What terminates is gone."""
        for name in [name for name, pod in self.pods.items() if "deletionTimestamp" in pod["metadata"]]:
            del self.pods[name]

    def schedule(self, most: int = 1000) -> None:
        """Bind pods that may run to the nodes that they are pinned to, as far as there is room."""
        for pod in self.pods.values():
            spec = pod["spec"]
            if spec["schedulingGates"] or spec.get("nodeName") or "deletionTimestamp" in pod["metadata"] or not most:
                continue
            terms = spec["affinity"]["nodeAffinity"][_REQUIRED]["nodeSelectorTerms"]
            name = terms[0]["matchFields"][-1]["values"][0]
            node = self.nodes.get(name)
            said = self.refuse.get(name, "")
            if node is None or node["spec"].get("unschedulable") or self.free(name) < _gpus(pod):
                said = "no room"
            if said:
                told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
                pod["status"] = _merged(pod["status"], {"conditions": [told]})
            else:
                spec["nodeName"] = name
                most -= 1
            self._touch(pod)

    def free(self, node: str) -> int:
        used = sum(_gpus(pod) for pod in self.pods.values() if pod["spec"].get("nodeName") == node)
        return int(self.nodes[node]["status"]["allocatable"][GPU]) - used

    def cordon(self, node: str, out: bool = True, fault: str = "") -> None:
        self.nodes[node]["spec"]["unschedulable"] = out
        if fault:
            mark = Mark("tray", node, fault, _stamp(self.now))
            self.nodes[node]["metadata"]["annotations"][FAULT] = msgspec.json.encode(mark).decode()
        else:
            self.nodes[node]["metadata"]["annotations"].pop(FAULT, None)
        self._touch(self.nodes[node])

    # --- what is looked at ------------------------------------------------------------------------------------------

    def of(self, gang: str) -> list[Object]:
        """The plans of a gang, by attempt."""
        found = [plan for plan in self.plans.values() if plan["spec"]["gang"] == gang]
        return sorted(found, key=lambda plan: int(plan["spec"]["attempt"]))

    def members(self, gang: str) -> list[Object]:
        return [pod for name, pod in sorted(self.pods.items()) if name.rpartition("-")[0] == gang]

    def where(self, gang: str) -> list[str]:
        """The nodes of a gang's pods, by name; `gated` and `free` for those on none."""
        return [
            pod["spec"].get("nodeName") or ("gated" if pod["spec"]["schedulingGates"] else "free")
            for pod in self.members(gang)
        ]

    def condition(self, pod: str) -> Object:
        """Ours."""
        found = self.pods[pod]["status"].get("conditions", [])
        return next((each for each in found if each["type"] == "rackyard.io/Placed"), {})

    def sync(self, cache: Cache) -> None:
        """What the watches tell."""
        for kind, known, there in (
            (Pod, cache.pods, self.pods),
            (GangPlan, cache.plans, self.plans),
            (PodGroup, cache.groups, self.groups),
        ):
            for each in list(there.values()):
                meta = each["metadata"]
                had = known.get(Key(meta["namespace"], meta["name"]))  # type: ignore[attr-defined]
                if had is None or had.metadata.resource_version != meta["resourceVersion"]:
                    cache.put(msgspec.convert(copy.deepcopy(each), kind))
            for key in [key for key in known if key.name not in there]:
                cache.heed(Gone(key, ""), kind)
        for name in [name for name in cache.nodes if name not in self.nodes]:
            cache.heed(Gone(Key("", name), ""), Node)
        for each in self.nodes.values():
            cache.put(msgspec.convert(each, Node))

    def _meta(self, meta: Object, namespace: str) -> Object:
        number = str(next(self._version))
        made = {"namespace": namespace, "uid": f"u{number}", "resourceVersion": number}
        return {**meta, **made, "creationTimestamp": _stamp(self.now)}

    def _touch(self, thing: Object) -> None:
        thing["metadata"]["resourceVersion"] = str(next(self._version))


@dataclass
class Desk:
    """A controller on that cluster. `told` is what it said."""

    server: Server
    rounds: Round = field(init=False)
    told: list[tuple[str, str, str]] = field(default_factory=list)
    killed: int = 0
    start: int = 0
    """Writes before what is looked at began."""
    due: float = 0.0
    act: bool = True

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """As a new process."""
        cache = Cache(queues=bool(self.server.groups))
        self.server.sync(cache)
        acts = Acts(self.server, self.server)  # type: ignore[arg-type]
        self.rounds = Round(acts, self.server.site, cache, lambda *line: self.told.append(line), self.act)

    def look(self) -> None:
        try:
            self.due = self.rounds.look(self.server.now)
        except Killed:
            self.killed += 1
            self.server.kill = None
            self.restart()

    def turn(self, seconds: float = 3.0, schedule: bool = True) -> None:
        """The controller looks, and all others do their part."""
        self.look()
        if schedule:
            self.server.schedule()
        self.server.leave()
        self.server.remake()
        self.server.sync(self.rounds.cache)
        self.server.now += timedelta(seconds=seconds)

    def settle(self, most: int = 80) -> None:
        """Until nothing is written any more but what is tried from time to time."""
        quiet = 0
        for _ in range(most):
            before = len(self.server.writes), self.killed
            self.turn(6.0)
            quiet = quiet + 1 if (len(self.server.writes), self.killed) == before else 0
            if quiet >= 4:
                return
        raise AssertionError(f"not settled: {self.server.writes[-20:]}, {self.told[-10:]}")

    def words(self, gang: str) -> list[str]:
        return [word for who, word, _ in self.told if who == f"ml/{gang}"]


def phase(plan: Object) -> str:
    return str(plan.get("status", {}).get("phase", "Planned"))


def json_of(body: Any) -> Any:
    """As it comes out of the wire."""
    return msgspec.json.decode(msgspec.json.encode(body))


def whole(server: Server, gang: str) -> bool:
    """Whether it is where its plan says, all of it; False when it waits as a whole. AssertionError for a half."""
    where = server.where(gang)
    going = [plan for plan in server.of(gang) if phase(plan) != "Ended"]
    if set(where) == {"gated"}:
        assert not going, f"{gang} waits, and has a plan: {going}"
        return False
    (plan,) = going
    assert phase(plan) == "Bound", phase(plan)
    assert dict(zip((pod["metadata"]["name"] for pod in server.members(gang)), where, strict=True)) == {
        each["pod"]: each["node"] for each in plan["spec"]["members"]
    }
    assert all(SEATS in pod["metadata"]["annotations"] for pod in server.members(gang))
    return True


def _merged(old: Object, new: Object) -> Object:
    """Conditions by type, as the strategic merge has it."""
    kept = {each["type"]: each for each in old.get("conditions", [])}
    kept |= {each["type"]: each for each in new.get("conditions", [])}
    return {**old, **new, "conditions": list(kept.values())}


def _gpus(pod: Object) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["limits"].get(GPU, 0))


def _stamp(now: datetime) -> str:
    return now.strftime("%Y-%m-%dT%H:%M:%SZ")
