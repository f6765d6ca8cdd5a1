"""A gang of 1,000 pods on 1,260 nodes: from all pods there to all pods bound, with Rackyard and without.

One cluster on this machine: etcd, Kubernetes, Volcano, and 70 racks of 18 trays, eight racks a block, as KWOK's nodes.
One gang of 4-GPU pods after the other is submitted as an Indexed Job (kube-scheduler) or a Volcano Job, in turns:

    rackyard + kube-scheduler   Rackyard's gate; `rackyard kube run` as a process of its own
    rackyard + volcano          the same through Volcano: nominated, pinned, let go
    kube-scheduler alone        a gate without meaning, lifted in bulk when all pods are there
    volcano alone               the same; HyperNodes are given and `networkTopology` is soft, over all tiers

The clock starts when an independent watch has seen the last of the pods, and ends when it has seen all of them bound,
so that what the job controllers need to make pods is not in it; it is told apart. The lifting of the gates is in it,
with the same client that Rackyard writes with. Domains are the racks that the gang spans (the fewest possible are
told), blocks likewise. `decide` is the CPU time of Rackyard's decision, as its own Event says it (not the first of the
process: one pod goes before); `cpu` and `rss` are those of its process, from its start and after the run.

    python benchmarks/kube.py [--pods 1000] [--runs 3] [--json benchmarks/results/kube.json]

Goals: at most 0.2 of Volcano alone and 1.0 of kube-scheduler alone, the fewest domains, a decision within 20 ms. Exit
code 1 when one is missed. Needs `make testbed`.
"""

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import psutil
from ruamel.yaml import YAML

sys.path.insert(0, str(Path(__file__).parents[1]))  # the test bed is not installed

from rackyard.backends.kubernetes.bulk import Bulk, Write
from rackyard.backends.kubernetes.client import Client, connect
from rackyard.backends.kubernetes.watch import Gone, Put, Watch, What
from rackyard.controller.kube.objects import GATE, GPU, SIZE, Pod
from rackyard.fabric import simulate
from rackyard.fabric.yamlio import dump
from testbed import Cluster, cluster
from testbed.api import until
from testbed.nodes import create
from testbed.options import Options

RACKS, TRAYS, BLOCK = 70, 18, 8
SITE = simulate(RACKS, TRAYS, racks_per_block=BLOCK)
HELD = "bench.rackyard.io/held"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
VOLCANO_JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
STRATEGIC = "application/strategic-merge-patch+json"
SYSTEMS = ("rackyard + kube-scheduler", "rackyard + volcano", "kube-scheduler alone", "volcano alone")


@dataclass
class Seen:
    """What the watch saw of pods, in monotonic seconds."""

    there: dict[str, float] = field(default_factory=dict)
    bound: dict[str, tuple[float, str]] = field(default_factory=dict)

    def follow(self, watch: Watch[Pod]) -> None:
        for event in watch:
            now = time.monotonic()
            match event:
                case Put(object=pod):
                    self.there.setdefault(pod.metadata.name, now)
                    if pod.spec.node_name:
                        self.bound.setdefault(pod.metadata.name, (now, pod.spec.node_name))
                case Gone(key=key):
                    self.there.pop(key.name, None)
                    self.bound.pop(key.name, None)


@dataclass
class Bench:
    """The cluster, and who watches and writes."""

    bed: Cluster
    client: Client
    bulk: Bulk
    seen: Seen
    site: Path
    pods: int
    told: dict[str, float] = field(default_factory=dict)
    number: int = 0
    """Of the gang: each has a name of its own, so that what is left of one is never taken for the next."""

    @property
    def gang(self) -> str:
        return f"gang-{self.number}"

    def run(self, system: str) -> dict[str, Any]:
        """One gang, from its submission until its pods are gone."""
        ours, volcano = system.startswith("rackyard"), "volcano" in system
        self.number += 1
        with self.controller() if ours else nobody() as process:
            load = os.getloadavg()[0]
            began = time.monotonic()
            self.submit(ours, volcano)
            until("all pods are there", lambda: len(self.seen.there) >= self.pods, 600, pause=0.02)
            start = max(self.seen.there.values())
            lifted = 0.0
            if not ours:
                self.lift()
                lifted = time.monotonic() - start
            until("all pods are bound", lambda: len(self.seen.bound) >= self.pods, 900, pause=0.02)
            end = max(at for at, _ in self.seen.bound.values())
            racks = {SITE.node(node).rack for _, node in self.seen.bound.values()}
            row = {
                "system": system,
                "bound_s": round(end - start, 2),
                "lifting_s": round(lifted, 2),
                "creation_s": round(start - began, 1),
                "domains": len(racks),
                "blocks": len({(int(rack[1:]) - 1) // BLOCK for rack in racks}),
                "load": round(load, 1),
                **(self.cost(process, start) if process is not None else {}),
            }
            self.withdraw(volcano)
        return row

    def submit(self, ours: bool, volcano: bool) -> None:
        annotations = {SIZE: str(self.pods)} if ours else {}
        labels = {"rackyard.io/gang": self.gang} if ours else {}
        spec: dict[str, Any] = {
            "schedulerName": "volcano" if volcano else "default-scheduler",
            "schedulingGates": [{"name": GATE if ours else HELD}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none", "resources": {"limits": {GPU: "4"}}}],
        }
        template = {"metadata": {"annotations": annotations, "labels": labels}, "spec": spec}
        if volcano:
            task = {"name": "w", "replicas": self.pods, "template": template}
            body = {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "metadata": {"name": self.gang},
                "spec": {
                    "minAvailable": self.pods, "schedulerName": "volcano", "queue": "default", "maxRetry": 3,
                    "tasks": [task],
                },
            }  # fmt: skip
            if not ours:
                body["spec"]["networkTopology"] = {"mode": "soft", "highestTierAllowed": 3}  # type: ignore[index]
            self.bed.api.post(VOLCANO_JOBS, body)
        else:
            size = {"completions": self.pods, "parallelism": self.pods, "completionMode": "Indexed"}
            body = {"metadata": {"name": self.gang}, "spec": {**size, "template": template}}
            self.bed.api.post(JOBS, body)

    def lift(self) -> None:
        """All gates, side by side."""
        body = {"spec": {"schedulingGates": [{"$patch": "delete", "name": HELD}]}}
        answers = self.bulk.send([Write("PATCH", f"{PODS}/{name}", body, STRATEGIC) for name in self.seen.there])
        wrong = [answer for answer in answers if isinstance(answer, Exception)]
        if wrong:
            raise wrong[0]

    def withdraw(self, volcano: bool) -> None:
        jobs = VOLCANO_JOBS if volcano else JOBS
        self.bed.api.delete(f"{jobs}/{self.gang}", propagationPolicy="Background")
        until("the job and its pods are gone", lambda: not self.seen.there and not self.bed.api.items(jobs), 600)

    @contextmanager
    def controller(self) -> Iterator[psutil.Popen]:
        """`rackyard kube run`, which has listed everything."""
        command = [sys.executable, "-m", "rackyard", "kube", "run", "--site", str(self.site), "--no-lease"]
        process = psutil.Popen(
            [*command, "--kubeconfig", str(self.bed.kubeconfig)], stdout=subprocess.PIPE, text=True, bufsize=1
        )
        try:
            for line in process.stdout:
                if "Watching" in line:
                    break
            threading.Thread(target=self.listen, args=(process.stdout,), daemon=True).start()
            self.warm()
            yield process
        finally:
            process.terminate()
            process.wait(30)

    def listen(self, said: Iterable[str]) -> None:
        """When the controller said what of the gang."""
        for line in said:
            for word in ("Placed", "Released"):
                if f"/{self.gang}: {word}:" in line:
                    self.told[word] = time.monotonic()

    def warm(self) -> None:
        """One pod, as a controller is not measured on the first decision of its life."""
        labels, notes = {"rackyard.io/gang": f"warm-{self.number}"}, {SIZE: "1"}
        resources = {"limits": {GPU: "4"}}
        spec = {"schedulingGates": [{"name": GATE}], "terminationGracePeriodSeconds": 0}
        container = {"name": "main", "image": "none", "resources": resources}
        meta = {"name": "warm", "labels": labels, "annotations": notes}
        self.bed.api.post(PODS, {"metadata": meta, "spec": {**spec, "containers": [container]}})
        until("it is bound", lambda: self.seen.bound, 60, pause=0.02)
        self.bed.api.delete(f"{PODS}/warm")
        until("it is gone", lambda: not self.seen.there, 60, pause=0.02)

    def cost(self, process: psutil.Popen, start: float) -> dict[str, Any]:
        """What the controller has spent since it was started, what its decision took, and when it was where."""
        spent = process.cpu_times()
        events = self.bed.api.items("/api/v1/namespaces/default/events", fieldSelector="reason=GangPlaced")
        newest = max(events, key=lambda event: int(event["metadata"]["resourceVersion"]))
        took = next(word for word in newest["message"].replace(";", ",").split(", ") if word.endswith(" ms"))
        return {
            "decide_ms": int(took.split()[0]),
            "placed_s": round(self.told["Placed"] - start, 2),
            "released_s": round(self.told["Released"] - start, 2),
            "cpu_s": round(spent.user + spent.system, 1),
            "rss_mib": round(process.memory_info().rss / 2**20),
        }


@contextmanager
def nobody() -> Iterator[None]:
    yield None


def main() -> None:
    """Measure, print the table, and end with 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", choices=SYSTEMS, action="append")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site.yaml"
        site.write_text(dump(SITE))
        options = Options(load=True)
        with (
            cluster(Path(folder) / "cluster", parts=("kwok", "volcano"), options=options) as bed,
            connect(str(bed.kubeconfig)) as client,
        ):
            create(bed, SITE)
            crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            bed.api.post(crds, YAML(typ="safe").load(Path(__file__).parents[1].joinpath("deploy/crd.yaml").read_text()))
            seen, watch = Seen(), Watch(client, What("/api/v1/pods", Pod))
            threading.Thread(target=seen.follow, args=(watch,), daemon=True).start()
            with closing(Bulk(client)) as bulk:
                bench = Bench(bed, client, bulk, seen, site, given.pods)
                for _ in range(given.runs):
                    for system in given.only or SYSTEMS:
                        rows.append(bench.run(system))
                        print(json.dumps(rows[-1]), flush=True)
            memory = {name: round(size / 2**20) for name, size in bed.memory().items()}
            watch.stop()
    sys.exit(report(rows, given, memory))


def report(rows: list[dict[str, Any]], given: argparse.Namespace, memory: dict[str, int]) -> int:
    """The table; 1 when a goal is missed."""
    fewest = math.ceil(given.pods / TRAYS)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(
        f"\n{date.today()}, {machine}; {given.pods} pods, {RACKS * TRAYS} KWOK nodes; medians of {given.runs}, measured"
    )
    print(f"{'system':<28}{'bound s':>9}{'of it lifting':>15}{'domains':>9}{'blocks':>8}{'decide ms':>11}{'CPU s':>7}"
          f"{'MiB':>6}{'creation s':>12}")  # fmt: skip
    median: dict[str, dict[str, Any]] = {}
    for system in given.only or SYSTEMS:
        mine = [row for row in rows if row["system"] == system]
        keys = [key for key in mine[0] if key != "system"]
        median[system] = {key: statistics.median(row[key] for row in mine) for key in keys}
        of = median[system]
        print(f"{system:<28}{of['bound_s']:>9.1f}{of['lifting_s']:>15.1f}{of['domains']:>9.0f}{of['blocks']:>8.0f}"
              f"{of.get('decide_ms', '-'):>11}{of.get('cpu_s', '-'):>7}{of.get('rss_mib', '-'):>6}"
              f"{of['creation_s']:>12.1f}")  # fmt: skip
    print(f"the fewest domains: {fewest}, blocks: {math.ceil(fewest / BLOCK)}")
    missed = []
    if set(median) == set(SYSTEMS):
        kube, volcano = median["rackyard + kube-scheduler"], median["rackyard + volcano"]
        for name, ours, theirs, goal in (
            ("rackyard + volcano / volcano alone", volcano, median["volcano alone"], 0.2),
            ("rackyard + kube-scheduler / kube-scheduler alone", kube, median["kube-scheduler alone"], 1.0),
        ):
            ratio = ours["bound_s"] / theirs["bound_s"]
            print(f"{name}: {ratio:.2f} (goal: at most {goal})")
            missed += [name] if ratio > goal else []
        for ours in (kube, volcano):
            missed += ["domains"] if ours["domains"] > fewest else []
            missed += ["decision"] if ours["decide_ms"] > 20 else []
    if given.json:
        command = " ".join(["python", "benchmarks/kube.py", *sys.argv[1:]])
        about = {"command": command, "date": str(date.today()), "machine": machine, "nodes": RACKS * TRAYS}
        given.json.write_text(
            json.dumps({**about, "pods": given.pods, "rows": rows, "memory_mib": memory}, indent=2) + "\n"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    main()
