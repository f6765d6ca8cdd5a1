"""Two candidates for one Lease on a real API server."""

import contextlib
import gc
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rackyard.backends.kubernetes.client import ApiError
from rackyard.backends.kubernetes.election import Timing
from rackyard.backends.kubernetes.lease import Candidate, Heard, Place, clock, connect_for, identity
from testbed import Cluster, cluster
from testbed.api import until

# A request that hangs when its candidate is given up leaves its socket to the garbage collector; `collected` sees that
# this happens here, where it is expected, and not in whatever test comes later.
pytestmark = [
    pytest.mark.kube,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"),
]

LONG = Timing(duration=60, deadline=40.0, retry=0.2)
"""A test that takes over sooner than that was not waiting for the lease to run out."""
SHORT = Timing(duration=6, deadline=4.0, retry=0.3)


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(scope="module")
def bed(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needs_testbed(())
    with cluster(tmp_path_factory.mktemp("lease") / "cluster") as found:
        yield found


@dataclass
class Runner:
    """A candidate, and on our clock when it came to hold and lost."""

    lease: Candidate
    held: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)


def runner(bed: Cluster, name: str, timing: Timing) -> Runner:
    heard = Heard(
        lambda: found.held.append(clock()), lambda: found.lost.append(clock()), lambda line: found.trouble.append(line)
    )
    client = connect_for(timing, str(bed.kubeconfig))
    found = Runner(Candidate(client, Place("default", name), identity(), timing, heard))
    found.lease.start()
    return found


def spec(bed: Cluster, name: str) -> dict[str, object]:
    found = bed.api.get(f"/apis/coordination.k8s.io/v1/namespaces/default/leases/{name}")["spec"]
    assert isinstance(found, dict)
    return found


def end(*runners: Runner) -> None:
    for each in runners:
        each.lease.release()
        for thread in each.lease._threads:
            thread.join()
        each.lease._client.http.close()


def test_one_holds_and_the_other_takes_over_after_release(bed: Cluster) -> None:
    first = runner(bed, "released", LONG)
    assert first.lease.wait(60)
    second = runner(bed, "released", LONG)
    until("the second has read it", lambda: second.lease.holder)
    assert second.lease.holder == first.lease._me and not second.lease.held
    began = spec(bed, "released")
    assert (began["leaseDurationSeconds"], began["leaseTransitions"]) == (60, 0)
    until("it is renewed", lambda: spec(bed, "released")["renewTime"] != began["renewTime"])
    assert spec(bed, "released")["acquireTime"] == began["acquireTime"]
    at = clock()
    end(first)
    until("the second is told", lambda: second.held)
    assert second.held[0] - at < LONG.deadline  # it did not wait for the time to run out
    assert (first.lost, second.lost) == ([], [])
    assert spec(bed, "released")["leaseTransitions"] == 1
    end(second)
    assert spec(bed, "released")["holderIdentity"] == ""


def test_what_a_dead_holder_leaves_runs_out(bed: Cluster) -> None:
    first = runner(bed, "expired", SHORT)
    assert first.lease.wait(60)
    first.lease._stop.set()  # as if it were killed: nothing is given back
    first.lease._threads[0].join()
    second = runner(bed, "expired", SHORT)
    until("the second has read it", lambda: second.lease.holder)
    at = clock()
    until("the second is told", lambda: second.held)
    assert second.held[0] - at > SHORT.duration - 1.0 and not first.lease.held
    first.lease._client.http.close()
    end(second)


RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
RULES: list[dict[str, Any]] = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"], "resourceNames": ["ruled"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["update"], "resourceNames": ["ruled"]},
]
"""What a candidate needs, in the lease's own namespace; `create` knows no names."""


def account(bed: Cluster, file: Path) -> Path:
    """A kubeconfig of an account that may do what the Role `ruled` says."""
    bed.api.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "ruled"}})
    bed.api.post(f"{RBAC}/roles", {"metadata": {"name": "ruled"}, "rules": []})
    subject = {"kind": "ServiceAccount", "name": "ruled", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "ruled"}
    bed.api.post(f"{RBAC}/rolebindings", {"metadata": {"name": "ruled"}, "roleRef": role, "subjects": [subject]})
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = bed.api.post("/api/v1/namespaces/default/serviceaccounts/ruled/token", kind)["status"]["token"]
    config = json.loads(bed.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    file.write_text(json.dumps(config))
    return file


def test_three_rules_suffice_and_each_is_needed(bed: Cluster, tmp_path: Path) -> None:
    with connect_for(LONG, str(account(bed, tmp_path / "kubeconfig"))) as client:
        path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"

        def goes(rules: list[dict[str, Any]]) -> Callable[[], bool]:
            """Whether a lease is made, renewed and given back under these rules."""
            bed.api.put(f"{RBAC}/roles/ruled", {**bed.api.get(f"{RBAC}/roles/ruled"), "rules": rules})

            def tried() -> bool:
                if any(each["metadata"]["name"] == "ruled" for each in bed.api.items(path)):
                    bed.api.delete(f"{path}/ruled")
                said: list[str] = []
                one = Candidate(client, Place("default", "ruled"), "me", LONG, Heard(trouble=said.append))
                for _ in range(2):
                    with contextlib.suppress(ApiError):
                        one._once()
                held = one.held
                one.release()
                return held and not said and spec(bed, "ruled").get("holderIdentity") == ""

            return tried

        for left_out in range(len(RULES)):
            until("all rules suffice", goes(RULES))
            works = goes(RULES[:left_out] + RULES[left_out + 1 :])
            until("without one it fails", lambda works=works: not works())


@pytest.mark.parametrize("how", ["hangs", "is gone"])
def test_without_an_api_server_the_holder_gives_up_before_another_could_take_it(bed: Cluster, how: str) -> None:
    name = how.replace(" ", "-")
    first = runner(bed, name, SHORT)
    assert first.lease.wait(60)
    second = runner(bed, name, SHORT)
    until("the second has read it", lambda: second.lease.holder)
    overlaps: list[float] = []
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.005):
            if first.lease.held and second.lease.held:
                overlaps.append(clock())

    looker = threading.Thread(target=look)
    looker.start()
    pid = bed.running()["kube-apiserver"].pid
    at = clock()
    if how == "hangs":
        os.kill(pid, signal.SIGSTOP)
    else:
        bed.kill("kube-apiserver")
    try:
        until("the first has given up", lambda: first.lost, timeout=60)
        assert not first.lease.held and not second.lease.held
        assert first.lost[0] - at < SHORT.duration
        if how == "is gone":
            until("it says why", lambda: first.trouble)
            assert "does not answer" in first.trouble[0]
    finally:
        if how == "hangs":
            os.kill(pid, signal.SIGCONT)
        else:
            bed.resume("kube-apiserver")
    until("one of them holds it", lambda: first.lease.held or second.lease.held)
    over.set()
    looker.join()
    assert overlaps == []
    end(first, second)
