"""A cluster on which jobs run for real: Volcano, process nodes, Rackyard's controller, and the commands."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from tests.cli.calling import Answer, call

from rackyard.backends.kubernetes.client import connect
from rackyard.controller.kube.duty import Duty
from rackyard.controller.kube.health import Options
from rackyard.fabric import Site, simulate
from testbed import Cluster, cluster
from testbed.api import until
from testbed.kubelet.kubelet import Kubelet
from testbed.kubelet.kubelet import Options as KubeletOptions
from testbed.kubelet.lifecycle import Backoff
from testbed.options import Options as ClusterOptions

SITE = simulate(2, 4)
"""Two racks of four trays."""
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
PLANS = "/apis/rackyard.io/v1alpha1/namespaces/default/gangplans"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ROOT = Path(__file__).parents[2]
PATIENCE = 240.0
"""Seconds: ranks import torch on cores that others use, too."""
_SOON = {"kube-controller-manager": ("--node-monitor-grace-period=6s", "--node-monitor-period=1s")}
_BEATS = KubeletOptions(lease=6, renew=1.0, status=5.0, backoff=Backoff(base=0.5))


@dataclass
class Rig:
    """`told` is what the controller says of gangs."""

    bed: Cluster
    kubelet: Kubelet
    told: list[tuple[str, str, str]] = field(default_factory=list)

    def call(self, command: str, *words: object) -> Answer:
        """One of the commands, on this cluster."""
        return call(command, *words, "--target", "kubernetes", "--kubeconfig", self.bed.kubeconfig)

    def submit(self, file: Path, *words: object) -> Answer:
        """`rackyard submit`, for pods that share the machine's network."""
        return self.call("submit", file, "--image", "none", "--host-network", *words)

    def why(self, job: str) -> str:
        return self.call("why", job).out

    def job(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.bed.api.get(f"{JOBS}/{name}")
        return found

    def state(self, name: str) -> str:
        return str(self.job(name).get("status", {}).get("state", {}).get("phase", ""))

    def pods(self, name: str) -> list[dict[str, Any]]:
        found = self.bed.api.items(PODS, labelSelector=f"rackyard.io/gang={name}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def plans(self, name: str) -> list[dict[str, Any]]:
        found = [plan for plan in self.bed.api.items(PLANS) if plan["spec"]["gang"] == name]
        return sorted(found, key=lambda plan: plan["spec"]["attempt"])

    def nodes(self, name: str) -> list[str]:
        """Of the newest plan."""
        return [member["node"] for member in self.plans(name)[-1]["spec"]["members"]]

    def until(self, what: str, check: Callable[[], Any], job: str = "") -> Any:
        """Wait for it; where it does not come, say how everything stands."""
        try:
            return until(what, check, timeout=PATIENCE, pause=0.2)
        except Exception as error:
            error.add_note(f"controller: {self.told}")
            if job:
                error.add_note(f"why: {self.why(job)}\njob: {self.job(job).get('status')}")
                error.add_note(self.bed.logs("vc-controller-manager")[-4000:])
            raise


@contextlib.contextmanager
def rig(folder: Path, site: Site = SITE) -> Iterator[Rig]:
    """All of it, on an empty folder."""
    options = ClusterOptions(flags=_SOON)
    with cluster(folder / "cluster", parts=("volcano",), options=options) as bed:
        bed.api.post(CRDS, YAML(typ="safe").load((ROOT / "deploy" / "crd.yaml").read_text()))
        until("the CRD is served", lambda: _established(bed))
        with connect(str(bed.kubeconfig)) as client, Kubelet(client, site, folder / "kubelet", _BEATS) as kubelet:
            for node in site.nodes:
                until("the node is ready", lambda name=node.name: _ready(bed, name))
            yield Rig(bed, kubelet)


@contextlib.contextmanager
def controlled(made: Rig, site: Site = SITE, health: Options | None = None) -> Iterator[None]:
    """The controller at work; with `health` it takes broken nodes out of use."""

    def tell(gang: str, word: str, line: str) -> None:
        made.told.append((gang, word, line))

    with connect(str(made.bed.kubeconfig)) as client:
        duty = Duty(client, site, tell, health=health)
        thread = threading.Thread(target=duty.run)
        thread.start()
        try:
            yield
        finally:
            duty.stop()
            thread.join(60)
            assert not thread.is_alive()


def _established(bed: Cluster) -> bool:
    found = bed.api.get(f"{CRDS}/gangplans.rackyard.io").get("status", {}).get("conditions")
    return any(each["type"] == "Established" and each["status"] == "True" for each in found or ())


def _ready(bed: Cluster, name: str) -> bool:
    node: Mapping[str, Any] = bed.api.get(f"/api/v1/nodes/{name}")
    conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")
