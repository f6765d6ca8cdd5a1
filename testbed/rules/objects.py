"""The objects of cases in a cluster: every name bears its case's prefix, and every node a label that says its case."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ruamel.yaml import YAML

from rackyard.fabric.writers import volcano
from testbed import nodes
from testbed.api import Api, until
from testbed.rules.cases import Ask, Case

CASE = "testbed.rackyard.io/case"
GANG = "testbed.rackyard.io/gang"
PODS = "/api/v1/namespaces/default/pods"
HYPERNODES = "/apis/topology.volcano.sh/v1alpha1/hypernodes"
MOST_GANGS = 4
ROUNDS = tuple(f"testbed.rackyard.io/slot-{at}" for at in range(MOST_GANGS))
"""Every node offers one of each: pods of one gang that ask for it share no node, those of several gangs do."""


def node_objects(case: Case) -> Iterator[dict[str, Any]]:
    """The nodes of a case."""
    for body in nodes.manifests(case.site, nodes.KWOK):
        name = case.prefix + body["metadata"]["name"]
        body["metadata"]["name"] = name
        body["metadata"]["labels"] |= {CASE: case.prefix + "nodes", "kubernetes.io/hostname": name}
        slots = dict.fromkeys(ROUNDS, "1")
        body["status"] |= {part: body["status"][part] | slots for part in ("capacity", "allocatable")}
        yield body


def hypernode_objects(case: Case) -> Iterator[dict[str, Any]]:
    """Its HyperNodes, as `topo export --to volcano` writes them."""
    for body in YAML(typ="safe").load_all(volcano.write(case.site)):
        if body:
            body["metadata"]["name"] = case.prefix + body["metadata"]["name"]
            for member in body["spec"]["members"]:
                member["selector"]["exactMatch"]["name"] = case.prefix + member["selector"]["exactMatch"]["name"]
            yield body


def busy_objects(case: Case) -> Iterator[dict[str, Any]]:
    """A pod on each node in use."""
    for node, gpus in case.busy.items():
        spec = {"nodeName": case.prefix + node, **_spec({nodes.GPU: str(gpus)})}
        yield {"metadata": {"name": f"{case.prefix}{node}", "labels": {CASE: case.prefix + "nodes"}}, "spec": spec}


def gang_name(case: Case, at: int) -> str:
    """The name of a case's gang number `at`."""
    return f"{case.prefix}g{at}"


def pod_spec(case: Case, at: int, ask: Ask) -> dict[str, Any]:
    """A pod of a gang."""
    wants = {nodes.GPU: str(ask.gpus)} | ({ROUNDS[at]: "1"} if ask.apart else {})
    return {**_spec(wants), "nodeSelector": {CASE: case.prefix + "nodes"}}


def settle(api: Api, cases: Sequence[Case]) -> None:
    """Make the nodes of the cases, and the pods that are on them beforehand."""
    nodes.create_nodes(api, [body for case in cases for body in node_objects(case)])
    nodes.await_ready(api, sum(len(case.site.nodes) for case in cases))
    post(api, PODS, (body for case in cases for body in busy_objects(case)))
    held = sum(len(case.busy) for case in cases)
    until("nodes in use", lambda: sum(_runs(pod) for pod in api.items(PODS)) >= held)


def clear(api: Api, *more: str) -> None:
    """Delete all pods and nodes, and what else is at these paths; returns when all is gone."""
    paths = (*more, PODS, "/api/v1/nodes")
    for path in paths:
        api.delete(path, gracePeriodSeconds="0")
    until("an empty cluster", lambda: not any(api.items(path) for path in paths))


def post(api: Api, path: str, bodies: Iterable[dict[str, Any]]) -> None:
    """Create them all, some at once."""
    api.many(lambda body: api.post(path, body), list(bodies))


def _spec(wants: dict[str, str]) -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"limits": wants, "requests": wants}}
    return {"terminationGracePeriodSeconds": 0, "containers": [container]}


def _runs(pod: dict[str, Any]) -> bool:
    return bool(pod["status"].get("phase") == "Running")
