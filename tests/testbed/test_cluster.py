"""The control plane as a whole: it schedules, listens on loopback only, survives restarts, and leaves nothing."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.testbed.conftest import Needs
from tests.testbed.listening import listening
from tests.testbed.work import ENDS, JOBS, PODS, VOLCANO_JOBS, gone, job, pod, volcano_job

from rackyard.backends.local.procs import alive
from rackyard.errors import ConflictError, RackyardError, UsageError
from rackyard.fabric.simulate import simulate
from testbed import Cluster, Options, cluster, nodes, processes
from testbed.api import Api, Refused, until
from testbed.cluster import end, leftovers

pytestmark = pytest.mark.kube

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def trays(bed: Cluster) -> Cluster:
    """The shared cluster with two racks of four trays."""
    nodes.create(bed, simulate(racks=2, trays=4))
    return bed


def test_a_pod_runs_to_completion_through_kube_scheduler(trays: Cluster) -> None:
    trays.api.post(PODS, pod("ends", ENDS))
    until("the pod to end", lambda: trays.api.get(f"{PODS}/ends")["status"]["phase"] == "Succeeded")
    assert trays.api.get(f"{PODS}/ends")["spec"]["nodeName"].startswith("r0")
    trays.api.delete(f"{PODS}/ends")


def test_a_pod_fails_with_the_exit_code_it_is_told(trays: Cluster) -> None:
    trays.api.post(PODS, pod("fails", {**ENDS, "testbed.rackyard.io/exit-code": "3"}))
    until("the pod to fail", lambda: trays.api.get(f"{PODS}/fails")["status"]["phase"] == "Failed")
    state = trays.api.get(f"{PODS}/fails")["status"]["containerStatuses"][0]["state"]
    assert state["terminated"]["exitCode"] == 3
    trays.api.delete(f"{PODS}/fails")


def test_a_pod_that_is_not_told_to_end_runs_on_until_it_is_deleted(trays: Cluster) -> None:
    trays.api.post(PODS, pod("stays", {}))
    until("the pod to run", lambda: trays.api.get(f"{PODS}/stays")["status"]["phase"] == "Running")
    trays.api.delete(f"{PODS}/stays")
    until("the pod to go", lambda: gone(trays.api, f"{PODS}/stays"))


def test_the_job_controller_works(trays: Cluster) -> None:
    trays.api.post(JOBS, job("four", 4, ENDS))
    until("the Job to end", lambda: trays.api.get(f"{JOBS}/four")["status"].get("succeeded") == 4)
    trays.api.delete(f"{JOBS}/four", propagationPolicy="Background")
    until("its pods to go", lambda: not trays.api.items(PODS))


def test_a_gang_runs_to_completion_through_volcano_in_one_rack(trays: Cluster) -> None:
    trays.api.post(VOLCANO_JOBS, volcano_job("gang", 4, ENDS))
    path = f"{VOLCANO_JOBS}/gang"
    until("the gang to end", lambda: trays.api.get(path).get("status", {}).get("state", {}).get("phase") == "Completed")
    used = {found["spec"]["nodeName"][:3] for found in trays.api.items(PODS)}
    assert len(used) == 1
    trays.api.delete(path, propagationPolicy="Background")
    until("its pods to go", lambda: not trays.api.items(PODS))


def test_nodes_have_gpus_labels_and_hypernodes(trays: Cluster) -> None:
    node = trays.api.get("/api/v1/nodes/r01-t01")
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert "rackyard.io/domain" in node["metadata"]["labels"] or "rackyard.io/rack" in node["metadata"]["labels"]
    tiers = [found["spec"]["tier"] for found in trays.api.items("/apis/topology.volcano.sh/v1alpha1/hypernodes")]
    assert tiers.count(1) == 2


def test_pages_of_a_list_are_put_together(trays: Cluster) -> None:
    assert len(trays.api.items("/api/v1/nodes", limit="3")) == 8


def test_everything_listens_on_loopback_only(bed: Cluster) -> None:
    found = listening(who.pid for who in bed.running().values())
    addresses = {address for sockets in found.values() for address, _ in sockets}
    assert addresses == {"127.0.0.1"}
    assert found[bed.running()["etcd"].pid] == []


def test_a_stranger_without_the_token_is_refused(bed: Cluster) -> None:
    stranger = Api(bed.api.server, "guess", (bed.layout.certs / "apiserver.crt").read_text())
    with pytest.raises(Refused) as error:
        stranger.get("/api/v1/nodes")
    assert error.value.code == 401
    stranger.close()


@pytest.mark.parametrize("program", ["kube-apiserver", "etcd"])
def test_restarted_programs_still_know_everything(trays: Cluster, program: str) -> None:
    before = trays.running()
    trays.restart(program, hard=True)
    assert trays.running()[program] != before[program]
    assert {name: who for name, who in trays.running().items() if name != program} == {
        name: who for name, who in before.items() if name != program
    }
    assert len(trays.api.items("/api/v1/nodes")) == 8


def test_a_killed_scheduler_binds_nothing_until_it_is_back(trays: Cluster) -> None:
    trays.kill("kube-scheduler")
    trays.api.post(PODS, pod("waits", ENDS))
    assert "nodeName" not in trays.api.get(f"{PODS}/waits")["spec"]
    with pytest.raises(UsageError, match="runs already"):
        trays.resume("etcd")
    trays.resume("kube-scheduler")
    until("the pod to end", lambda: trays.api.get(f"{PODS}/waits")["status"]["phase"] == "Succeeded")
    trays.api.delete(f"{PODS}/waits")


def test_logs_and_memory_are_told_by_program(bed: Cluster) -> None:
    assert "Serving securely on 127.0.0.1" in bed.logs("kube-apiserver")
    assert min(bed.memory().values()) > 2**20
    with pytest.raises(UsageError, match="no program 'kubelet'"):
        bed.logs("kubelet")


def test_two_clusters_run_side_by_side_and_end_apart(bed: Cluster, tmp_path: Path) -> None:
    with cluster(tmp_path / "other", options=Options(name="other")) as other:
        assert set(other.plan.ports.values()).isdisjoint(bed.plan.ports.values())
        other.api.post("/api/v1/namespaces", {"metadata": {"name": "only-here"}})
        assert gone(bed.api, "/api/v1/namespaces/only-here")
        runs = list(other.running().values())
        with pytest.raises(ConflictError):
            Cluster.start(tmp_path / "other", Options())
        assert all(alive(who) for who in runs)
    assert not any(alive(who) for who in runs)
    assert not (tmp_path / "other").exists()
    assert other.plan.mark not in leftovers()
    assert processes.marked(other.plan.mark) == ()
    assert bed.api.get("/readyz") == "ok"


def test_a_cluster_that_fails_to_start_leaves_nothing(needs_testbed: Needs, tmp_path: Path) -> None:
    needs_testbed(())
    with pytest.raises(RackyardError, match="kube-scheduler ended while it was started") as error:
        Cluster.start(tmp_path / "c", Options(flags={"kube-scheduler": ("--no-such-flag",)}))
    assert "no-such-flag" in (error.value.why or "")
    assert not (tmp_path / "c").exists()
    assert tmp_path / "c" not in leftovers().values()


def test_with_load_options_pods_run_and_new_nodes_are_free_at_once(needs_testbed: Needs, tmp_path: Path) -> None:
    needs_testbed(("kwok",))
    with cluster(tmp_path / "c", parts=("kwok",), options=Options(load=True)) as bed:
        nodes.create(bed, simulate(racks=2))
        assert all("taints" not in node["spec"] for node in bed.api.items("/api/v1/nodes"))
        bed.api.post(PODS, pod("ends", ENDS))
        until("the pod to end", lambda: bed.api.get(f"{PODS}/ends")["status"]["phase"] == "Succeeded")


def test_what_a_killed_test_left_is_found_and_ended(needs_testbed: Needs, tmp_path: Path) -> None:
    needs_testbed(())
    script = (
        "import os, sys; from pathlib import Path; from testbed import Cluster, Options\n"
        "found = Cluster.start(Path(sys.argv[1]), Options())\n"
        "(found.layout.pids / 'etcd.json').unlink()  # as if it had been killed before the file was written\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "c")], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    ((mark, folder),) = [(mark, folder) for mark, folder in leftovers().items() if folder == tmp_path / "c"]
    assert len(processes.marked(mark)) == 4
    end(mark, folder)
    assert processes.marked(mark) == ()
    assert mark not in leftovers()


def test_the_command_brings_up_tells_and_takes_down(needs_testbed: Needs, tmp_path: Path) -> None:
    needs_testbed(("kwok",))

    def run(*args: str) -> str:
        argv = [sys.executable, "-m", "testbed", *args]
        return subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    folder = str(tmp_path / "c")
    kubeconfig = Path(run("up", "--name", "from-test", "--folder", folder, "--racks", "1", "--trays", "2").strip())
    assert kubeconfig == tmp_path / "c" / "kubeconfig"
    assert "from-test: " in run("status")
    api = Api.of(kubeconfig)
    assert len(api.items("/api/v1/nodes")) == 2
    api.close()
    run("down", "--folder", folder)
    assert not kubeconfig.exists()
    assert "from-test: " not in run("status")
