"""Jobs read from an API server: what comes of their objects, and what is said where something is not there."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from rackyard.backends.kubernetes import jobobjects as objects
from rackyard.backends.kubernetes.client import Client, Retry, connect
from rackyard.backends.kubernetes.jobs import Jobs
from rackyard.controller.kube.waker import Waker, asleep
from rackyard.errors import NotYet, RackyardError, UsageError
from rackyard.jobs.kubejob import phase_of
from rackyard.jobs.kubewhy import why

VOLCANO = "/apis/batch.volcano.sh/v1alpha1"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1"
SPACE = "namespaces/default"
PODS, PLANS = f"/api/v1/{SPACE}/pods", f"/apis/rackyard.io/v1alpha1/{SPACE}/gangplans"
JOBS = f"{VOLCANO}/{SPACE}/jobs"


class Server:
    """Answers GETs from `objects`, lists as lists; notes what is posted. What it does not know is a 404."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {GROUPS + "/queues": [{"metadata": {"name": "default"}}], PLANS: []}
        self.objects[f"/api/v1/{SPACE}"] = {"metadata": {"name": "default"}}
        self.posted: list[tuple[str, dict[str, str], Any]] = []
        self.refuse: dict[str, int] = {}
        self.absent = False
        """Whether the namespace is not there."""
        self.url = ""

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if path in self.refuse:
            return self.refuse[path], {"code": self.refuse[path], "message": "not you"}
        if self.absent and (method == "POST" or path.endswith(f"/{SPACE}")):
            details = {"name": "default", "kind": "namespaces"}
            return 404, {"code": 404, "message": 'namespaces "default" not found', "details": details}
        if method == "POST":
            self.posted.append((path, query, body))
            return 201, body
        if path not in self.objects:
            return 404, {"code": 404, "message": "the server could not find the requested resource"}
        found = self.objects[path]
        if not isinstance(found, list):
            return 200, found
        at = int(query.get("continue", "0"))
        more = {"continue": str(at + 2)} if at + 2 < len(found) else {}
        return 200, {"metadata": more, "items": found[at : at + 2]}


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            length = int(self.headers.get("Content-Length", "0"))
            code, found = made.answer(
                self.command, parts.path, query, json.loads(self.rfile.read(length)) if length else None
            )
            text = found.encode() if isinstance(found, str) else json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = handle_any

        def log_message(self, *_: object) -> None:
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    listener.shutdown()
    thread.join()
    listener.server_close()


@pytest.fixture
def client(server: Server, tmp_path: Path) -> Iterator[Client]:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    with connect(str(tmp_path / "kubeconfig"), retry=Retry(tries=1)) as made:
        yield made


def volcano_job(name: str, phase: str = "Running", **status: Any) -> dict[str, Any]:
    meta = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "creationTimestamp": "2026-11-30T10:00:00Z",
        "annotations": {"rackyard.io/spec": json.dumps({"gpus": 4, "recover": {"attempts": 2}})},
    }
    return {"metadata": meta, "spec": {"queue": "default"}, "status": {"state": {"phase": phase}, **status}}


def pod(job: str, phase: str = "Running", **status: Any) -> dict[str, Any]:
    told = {"rackyard.io/rank": "0", "rackyard.io/attempt": "1", "rackyard.io/seats": "0:0:a,1:1:b"}
    meta = {"name": f"{job}-worker-0", "labels": {"rackyard.io/gang": job}, "annotations": told}
    return {"metadata": meta, "spec": {"nodeName": "r01-t01"}, "status": {"phase": phase, **status}}


def plan(job: str, attempt: int = 1, uid: str = "") -> dict[str, Any]:
    meta = {"name": f"{job}-{attempt}", "ownerReferences": [{"uid": uid or f"uid-{job}"}]}
    members = [{"pod": f"{job}-worker-0", "uid": "u", "node": "r01-t01", "segment": 0, "seats": "0:0:a"}]
    status = {"phase": "Bound", "releasedAt": "2026-11-30T10:00:05Z"}
    return {"metadata": meta, "spec": {"gang": job, "attempt": attempt, "members": members}, "status": status}


def test_all_jobs_are_listed_page_by_page_with_their_steps(server: Server, client: Client) -> None:
    names = ["a", "b", "c", "d", "e"]
    server.objects[JOBS] = [volcano_job(name) for name in names]
    server.objects[PODS] = [pod(name) for name in names]
    server.objects[PLANS] = [plan(name) for name in names]
    for name in names:
        server.objects[f"{PODS}/{name}-worker-0/log"] = "[0] hi\n[rackyard] step 3 loss=0.5\n[rackyard] odd\n"
    found = Jobs(client).listed()
    assert [(job.name, job.gpus, job.attempt, job.step, job.metrics, phase_of(job).value) for job in found] == [
        (name, 4, 1, 3, {"loss": 0.5}, "running") for name in reversed(names)
    ]


def test_a_job_whose_log_can_not_be_had_is_listed_all_the_same(server: Server, client: Client) -> None:
    server.objects |= {JOBS: [volcano_job("a")], PODS: [pod("a")]}
    server.refuse[f"{PODS}/a-worker-0/log"] = 500
    assert [(job.name, job.step) for job in Jobs(client).listed()] == [("a", 0)]


def test_plans_of_an_earlier_job_of_that_name_are_not_its_own(server: Server, client: Client) -> None:
    server.objects |= {
        f"{JOBS}/a": volcano_job("a"),
        PODS: [],
        PLANS: [plan("a", 1, "uid-old"), plan("a", 2), plan("b")],
    }
    assert [one.attempt for one in Jobs(client).read("a").plans] == [2]


def test_how_a_pod_ended_and_why_one_waits(server: Server, client: Client) -> None:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": None}}
    waits = {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}}
    server.objects |= {f"{JOBS}/a": volcano_job("a"), f"{JOBS}/b": volcano_job("b")}
    server.objects[PODS] = [pod("a", "Failed", containerStatuses=[{"state": ended}])]
    (failed,) = Jobs(client).read("a").pods
    assert failed.ended is not None and (failed.ended.status, failed.ended.reason) == ("137", "OOMKilled")
    server.objects[PODS] = [pod("b", "Pending", containerStatuses=[{"state": waits}])]
    (waiting,) = Jobs(client).read("b").pods
    assert waiting.waiting is not None and waiting.waiting.reason == "ImagePullBackOff"


def test_what_is_written_by_others_is_not_believed(server: Server, client: Client) -> None:
    job, odd = volcano_job("a"), pod("a")
    job["metadata"]["annotations"] = {"rackyard.io/spec": "{not json"}
    odd["metadata"]["annotations"] = {"rackyard.io/rank": "-1", "rackyard.io/attempt": "9" * 40}
    node = {"metadata": {"name": "r01-t01", "annotations": {"rackyard.io/fault": "[1"}}}
    server.objects |= {f"{JOBS}/a": job, PODS: [odd], PLANS: [plan("a")], "/api/v1/nodes/r01-t01": node}
    found = Jobs(client).with_nodes(Jobs(client).read("a"))
    assert (found.gpus, found.pods[0].rank, found.pods[0].attempt, found.nodes["r01-t01"].faults) == (0, 0, 0, ())


def test_nodes_are_asked_for_together_where_there_are_many(server: Server, client: Client) -> None:
    many = plan("a")
    many["spec"]["members"] = [{"node": f"n{at}", "segment": 0} for at in range(70)]
    mark = {"cause": "tray", "subject": "n1", "summary": "tray n1 is lost", "at": "2026-11-30T10:00:06Z"}
    labels = {"rackyard.io/rack": "r01"}
    told = {"metadata": {"name": "n1", "labels": labels, "annotations": {"rackyard.io/fault": json.dumps(mark)}}}
    server.objects |= {f"{JOBS}/a": volcano_job("a"), PODS: [], PLANS: [many], "/api/v1/nodes": [told]}
    (node,) = Jobs(client).with_nodes(Jobs(client).read("a")).nodes.values()
    assert node.rack == "r01" and [fault.message for fault in node.faults] == ["tray n1 is lost"]


def test_no_log_is_no_error_of_the_cluster(server: Server, client: Client) -> None:
    with pytest.raises(NotYet, match="pod gone has no log"):
        Jobs(client).log("gone")


BODY = {"metadata": {"name": "a"}, "spec": {"queue": "default"}}


def test_a_dry_run_asks_and_stores_nothing(server: Server, client: Client) -> None:
    Jobs(client).submit(BODY, dry_run=True)
    ((path, query, _),) = server.posted
    assert path == JOBS and query["dryRun"] == "All"


@pytest.mark.parametrize(
    ("change", "what", "fix"),
    [
        ({PLANS: None}, "does not know Rackyard's GangPlan", "deploy/crd.yaml"),
        ({GROUPS + "/queues": None}, "does not know Volcano", "install it"),
    ],
)
def test_what_is_not_installed_is_named(
    server: Server, client: Client, change: dict[str, None], what: str, fix: str
) -> None:
    for path in change:
        del server.objects[path]
    with pytest.raises(RackyardError, match=what) as raised:
        Jobs(client).submit(BODY)
    assert raised.value.exit_code == 1 and fix in (raised.value.fix or "") and not server.posted


CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
OF_CLASS = {"metadata": {"name": "a"}, "spec": {"queue": "default", "priorityClassName": "hihg"}}


def test_the_priority_class_is_looked_for_as_the_queue_is(server: Server, client: Client) -> None:
    server.objects[CLASSES] = [{"metadata": {"name": "high"}}, {"metadata": {"name": "low"}}]
    for dry_run in (False, True):
        with pytest.raises(UsageError, match="no PriorityClass 'hihg'") as raised:
            Jobs(client).submit(OF_CLASS, dry_run=dry_run)
        assert raised.value.fix == "did you mean high? there are: high, low" and not server.posted
    server.objects[CLASSES] = [{"metadata": {"name": "hihg"}}]
    assert Jobs(client).submit(OF_CLASS) == "a"


def test_who_may_not_look_at_priority_classes_may_still_submit(server: Server, client: Client) -> None:
    server.refuse[CLASSES] = 403
    assert Jobs(client).submit(OF_CLASS) == "a"


def test_a_namespace_that_is_not_there(server: Server, client: Client) -> None:
    """Its lists are empty, and what is created there is a 404 that names it."""
    server.objects |= {JOBS: [], PODS: []}
    server.absent = True
    for act in (Jobs(client).listed, lambda: Jobs(client).read("a"), lambda: Jobs(client).submit(BODY, dry_run=True)):
        with pytest.raises(UsageError, match="no namespace 'default'") as raised:
            act()
        assert raised.value.exit_code == 2 and "kubectl create namespace default" in (raised.value.fix or "")
    server.refuse["/api/v1/namespaces/default"] = 403
    assert Jobs(client).listed() == []
    with pytest.raises(UsageError, match="no job 'a'"):
        Jobs(client).read("a")


def test_a_list_says_why_pods_are_refused(server: Server, client: Client) -> None:
    def event(about: str, message: str) -> dict[str, Any]:
        at = "2026-11-30T10:00:09Z"
        told = {"reason": "FailedCreate", "type": "Warning", "message": message, "lastTimestamp": at, "count": None}
        return {"involvedObject": {"name": about}, **told}

    events = f"/api/v1/{SPACE}/events"
    server.objects |= {JOBS: [volcano_job("a", "Pending"), volcano_job("b")], PODS: [pod("b")]}
    server.objects[events] = [event("a", "quota"), event("b", "of old"), event("c", "of others")]
    a, b = Jobs(client).listed()[::-1]
    assert why(a).reason == "its pods can't be created: quota" and not b.events
    server.refuse[events] = 403
    assert [job.events for job in Jobs(client).listed()] == [(), ()]


def test_who_may_not_look_at_queues_and_plans_may_still_submit(server: Server, client: Client) -> None:
    server.refuse |= {PLANS: 403, GROUPS + "/queues": 403}
    assert Jobs(client).submit(BODY) == "a"


@pytest.mark.parametrize(("code", "what"), [(409, "there is a job 'a' already"), (422, "refuses the job")])
def test_what_the_server_refuses(server: Server, client: Client, code: int, what: str) -> None:
    server.refuse[JOBS] = code
    with pytest.raises(UsageError, match=what):
        Jobs(client).submit(BODY)


def test_who_is_asleep(server: Server, client: Client) -> None:
    def made(phase: str, at: str) -> dict[str, Any]:
        return volcano_job("a", state={"phase": phase, "lastTransitionTime": at})

    old, new = "2026-11-30T10:00:00Z", "2026-11-30T10:01:00Z"
    now = objects.seconds(new) + 1
    for phase, at, sleeps in (("Restarting", old, 1), ("Restarting", new, 0), ("Running", old, 0)):
        server.objects[f"{VOLCANO}/jobs"] = [made(phase, at)]
        server.objects[PODS] = []
        told: list[tuple[str, str, str]] = []
        assert Waker(client, lambda *words, to=told: to.append(words), wall=lambda: now).look() == sleeps == len(told)
    assert [(body["action"], body["target"]["name"]) for _, _, body in server.posted] == [("SyncJob", "a")]
    server.objects[f"{VOLCANO}/jobs"], server.objects[PODS] = [made("Restarting", old)], [pod("a")]
    assert Waker(client, lambda *_: None, wall=lambda: now).look() == 0, "its pods are on their way out"
    server.objects[PODS] = []
    assert Waker(client, lambda *_: None, act=False, wall=lambda: now).look() == 1 and len(server.posted) == 1
    assert asleep([], now) == []
