"""A controller that starts on a full cluster: from its start to the first binding, and what it holds and decodes.

2,502 nodes (139 racks of 18 trays, KWOK's) with 20,000 pods on them, eight a node, among them 1,900 gangs of one pod
that a plan speaks for; and one gang of 64 gated pods that waits. `rackyard kube run` is started as a process of its
own, several times; each time the waiting gang is new. Measured from its start: everything listed, the plan
stored, the first pod bound, all bound; its CPU time and memory then. Then what decoding costs: the same list of pods
as the API server sends it, into the fields that decisions use and into everything.

    python benchmarks/kube_restart.py [--racks 139] [--pods 20000] [--runs 3] [--json FILE]

Goal: the first pod bound within 30 s of the start. Exit code 1 when missed. Needs `make testbed`.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import psutil
from ruamel.yaml import YAML

sys.path.insert(0, str(Path(__file__).parents[1]))  # the test bed is not installed

from rackyard.backends.kubernetes.bulk import Bulk, Write
from rackyard.backends.kubernetes.client import JSON, Client, connect
from rackyard.controller.kube.objects import GANG, GATE, GPU, RANK, SEATS, SIZE, Pod
from rackyard.fabric import Site, simulate
from rackyard.fabric.yamlio import dump
from testbed import Cluster, cluster
from testbed.api import Refused, until
from testbed.nodes import create
from testbed.options import Options

PODS = "/api/v1/namespaces/default/pods"
PLANS = "/apis/rackyard.io/v1alpha1/namespaces/default/gangplans"
GANG_SIZE, GOAL = 64, 30.0
RUNNING_SHARE = 0.75
"""Of the nodes with a running gang of one pod."""
ANNOTATION = "x" * 1500
"""Of every pod, so that pods are as large as real ones."""


def pod(name: str, node: str, gpus: int, labels: dict[str, str], notes: dict[str, str]) -> dict[str, Any]:
    resources = {"cpu": "1", **({GPU: str(gpus)} if gpus else {})}
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "none", "resources": {"limits": resources}}]}
    spec |= {"nodeName": node} if node else {"schedulingGates": [{"name": GATE}]}
    meta = {"name": name, "labels": {"app": "bench", **labels}, "annotations": {"note": ANNOTATION, **notes}}
    return {"metadata": meta, "spec": {**spec, "terminationGracePeriodSeconds": 0}}


def fill(bulk: Bulk, site: Site, pods: int) -> None:
    """Pods that run, and the plans of those that are gangs."""
    nodes = [node.name for node in site.nodes]
    running = int(RUNNING_SHARE * len(nodes))
    seats = [f"{4 * 0 + g}:{g}:mlx5_{g}" for g in range(4)]
    writes, plans = [], []
    for at, node in enumerate(nodes):
        if at < running:
            notes = {SIZE: "1", RANK: "0", SEATS: ",".join(seats)}
            writes.append(Write("POST", PODS, pod(f"run-{at}", node, 4, {GANG: f"run-{at}"}, notes)))
    made = send(bulk, writes)
    for at, answer in enumerate(made):
        uid = json.loads(answer)["metadata"]["uid"]
        member = {"pod": f"run-{at}", "uid": uid, "node": nodes[at], "segment": 0, "seats": ",".join(seats)}
        spec = {"gang": f"run-{at}", "attempt": 1, "siteDigest": "bench", "members": [member]}
        body = {
            "apiVersion": "rackyard.io/v1alpha1",
            "kind": "GangPlan",
            "metadata": {"name": f"run-{at}-1"},
            "spec": spec,
        }
        plans.append(Write("POST", PLANS, body))
    send(bulk, plans)
    status = {"status": {"phase": "Bound"}}
    merge = "application/merge-patch+json"
    send(bulk, [Write("PATCH", f"{PLANS}/run-{at}-1/status", status, merge) for at in range(len(plans))])
    others = [Write("POST", PODS, pod(f"other-{n}", nodes[n % len(nodes)], 0, {}, {})) for n in range(pods - running)]
    send(bulk, others)


def served(bed: Cluster) -> bool:
    try:
        return not bed.api.items(PLANS)
    except Refused:
        return False


def send(bulk: Bulk, writes: list[Write]) -> list[bytes]:
    answers = bulk.send(writes)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
    return [answer for answer in answers if isinstance(answer, bytes)]


def run(bed: Cluster, bulk: Bulk, site: Path, number: int) -> dict[str, Any]:
    """One start."""
    gang = f"new-{number}"
    send(
        bulk,
        [
            Write("POST", PODS, pod(f"{gang}-{n}", "", 4, {GANG: gang}, {SIZE: str(GANG_SIZE)}))
            for n in range(GANG_SIZE)
        ],
    )
    load = os.getloadavg()[0]
    command = [sys.executable, "-m", "rackyard", "kube", "run", "--site", str(site), "--no-lease"]
    began = time.monotonic()
    process = psutil.Popen(
        [*command, "--kubeconfig", str(bed.kubeconfig)], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    at: dict[str, float] = {}

    def listen() -> None:
        for line in process.stdout:
            for word, key in (
                ("cluster: Watching", "listed_s"),
                (f"{gang}: Placed", "placed_s"),
                (f"{gang}: Bound", "all_s"),
            ):
                if word in line:
                    at.setdefault(key, round(time.monotonic() - began, 2))

    try:
        with ThreadPoolExecutor(1) as pool:
            heard = pool.submit(listen)
            selector = {"labelSelector": f"{GANG}={gang}", "fieldSelector": "spec.nodeName!="}
            until("the first is bound", lambda: bed.api.items(PODS, **selector), 300, pause=0.05)
            at["first_s"] = round(time.monotonic() - began, 2)
            until("all are bound", lambda: "all_s" in at, 300)
            spent = process.cpu_times()
            cost = {"cpu_s": round(spent.user + spent.system, 1), "rss_mib": round(process.memory_info().rss / 2**20)}
            process.terminate()
            heard.result(30)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(30)
    bed.api.delete(PODS, labelSelector=f"{GANG}={gang}")
    until("the gang is gone", lambda: not bed.api.items(PODS, labelSelector=f"{GANG}={gang}"), 120)
    return {"run": number, "load": round(load, 1), **at, **cost}


def decoding(client: Client) -> dict[str, Any]:
    """What 2,000 pods cost to decode, in CPU seconds of one thread."""
    page = client.get("/api/v1/pods", {"limit": "2000"}, JSON)
    raw = msgspec.json.decode(page, type=Items).items
    began = time.thread_time()
    typed = [msgspec.json.decode(each, type=Pod) for each in raw]
    middle = time.thread_time()
    whole = [json.loads(bytes(each)) for each in raw]
    end = time.thread_time()
    assert len(typed) == len(whole)
    return {
        "pod_bytes": round(len(page) / len(raw)),
        "typed_per_cpu_s": round(len(raw) / (middle - began)),
        "json_per_cpu_s": round(len(raw) / (end - middle)),
    }


class Items(msgspec.Struct):
    """A list, undecoded."""

    items: list[msgspec.Raw]


def main() -> None:
    """Measure, print the table, and end with 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--racks", type=int, default=139)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    site = simulate(given.racks, racks_per_block=8)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "site.yaml"
        file.write_text(dump(site))
        where = Path(folder) / "cluster"
        with cluster(where, parts=("kwok",), options=Options(load=True)) as bed, connect(str(bed.kubeconfig)) as client:
            create(bed, site)
            crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            bed.api.post(crds, YAML(typ="safe").load(Path(__file__).parents[1].joinpath("deploy/crd.yaml").read_text()))
            until("the CRD is served", lambda: served(bed))
            with closing(Bulk(client)) as bulk:
                began = time.monotonic()
                fill(bulk, site, given.pods)
                print(f"{given.pods} pods made in {time.monotonic() - began:.0f} s", flush=True)
                rows = []
                for number in range(given.runs):
                    rows.append(run(bed, bulk, file, number))
                    print(json.dumps(rows[-1]), flush=True)
            rate = decoding(client)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    median = {key: statistics.median(row[key] for row in rows) for key in rows[0] if key != "run"}
    print(
        f"\n{date.today()}, {machine}; {len(site.nodes)} KWOK nodes, {given.pods} pods; "
        f"medians of {given.runs}, measured"
    )
    print(
        "seconds from the start: "
        + ", ".join(f"{k.removesuffix('_s')} {v:g}" for k, v in median.items() if k[-2:] == "_s")
    )
    print(f"memory {median['rss_mib']:.0f} MiB; goal: first pod bound within {GOAL:.0f} s")
    print(f"decoding pods of {rate['pod_bytes']} bytes: {rate['typed_per_cpu_s']} per CPU second into what is used, "
          f"{rate['json_per_cpu_s']} by json")  # fmt: skip
    if given.json:
        command = " ".join(["python", "benchmarks/kube_restart.py", *sys.argv[1:]])
        about = {"command": command, "date": str(date.today()), "machine": machine, "nodes": len(site.nodes)}
        given.json.write_text(
            json.dumps({**about, "pods": given.pods, "rows": rows, "decoding": rate}, indent=2) + "\n"
        )
    sys.exit(1 if median["first_s"] > GOAL else 0)


if __name__ == "__main__":
    main()
