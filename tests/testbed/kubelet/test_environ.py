"""The environment and command line of a container."""

import json
from typing import Any

import msgspec
import pytest

from testbed.kubelet.environ import Resolved, expand, resolve
from testbed.kubelet.podspec import KeyRef, Pod, left_out


def resolved(container: dict[str, Any], over: dict[str, str] | None = None) -> Resolved:
    meta = {
        "name": "p-3",
        "namespace": "n",
        "uid": "u",
        "labels": {"volcano.sh/task-index": "3"},
        "annotations": {"rackyard.io/rank": "7"},
    }
    spec = {"nodeName": "r01-t02", "containers": [{"name": "main"} | container]}
    pod = msgspec.convert({"metadata": meta, "spec": spec}, Pod)
    return resolve(pod, pod.spec.containers[0], {"PATH": "/bin"}, over or {}, look)


def look(kind: str, reference: KeyRef) -> str | None:
    return {("configmaps", "hosts", "w"): "a,b", ("secrets", "s", "k"): "word"}.get(
        (kind, reference.name, reference.key)
    )


def var(name: str, kind: str, /, **fields: Any) -> dict[str, Any]:
    return {"name": name, "valueFrom": {kind: fields}}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p-3"),
        ("metadata.namespace", "n"),
        ("metadata.uid", "u"),
        ("metadata.annotations['rackyard.io/rank']", "7"),
        ("metadata.labels['volcano.sh/task-index']", "3"),
        ("metadata.labels['none']", ""),
        ("spec.nodeName", "r01-t02"),
        ("status.podIP", "127.0.0.1"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_fields_of_the_pod(path: str, value: str) -> None:
    assert resolved({"env": [var("V", "fieldRef", fieldPath=path)]}).env["V"] == value


def test_variables_stand_in_variables_and_words() -> None:
    found = resolved(
        {
            "command": ["sh", "-c", "echo $(RANK) $$(RANK) $(NONE) $HOME"],
            "args": ["--addr=$(ADDR)"],
            "env": [
                var("RANK", "fieldRef", fieldPath="metadata.annotations['rackyard.io/rank']"),
                {"name": "ADDR", "value": "$(LATER)/$(RANK)"},
                {"name": "LATER", "value": "x"},
            ],
        }
    )
    assert found.argv == ("sh", "-c", "echo 7 $(RANK) $(NONE) $HOME", "--addr=$(LATER)/7")
    assert found.env == {"PATH": "/bin", "HOSTNAME": "p-3", "RANK": "7", "ADDR": "$(LATER)/7", "LATER": "x"}
    assert expand("$$$(A)$", {"A": "1"}) == "$1$"


def test_what_is_given_over_it_wins() -> None:
    env = [{"name": "CUDA_VISIBLE_DEVICES", "value": "0,1,2,3"}]
    assert resolved({"env": env}, {"CUDA_VISIBLE_DEVICES": "2"}).env["CUDA_VISIBLE_DEVICES"] == "2"


def test_config_maps_and_secrets() -> None:
    env = [
        var("HOSTS", "configMapKeyRef", name="hosts", key="w"),
        var("WORD", "secretKeyRef", name="s", key="k"),
        var("MAYBE", "configMapKeyRef", name="hosts", key="none", optional=True),
        var("NEEDED", "secretKeyRef", name="s", key="none"),
        var("CPUS", "resourceFieldRef", resource="limits.cpu"),
        var("ODD", "fieldRef", fieldPath="spec.odd"),
    ]
    found = resolved({"env": env})
    assert found.env["HOSTS"] == "a,b" and found.env["WORD"] == "word" and "MAYBE" not in found.env
    assert found.missing == ("NEEDED: no key none in secrets s",)
    assert [text.split()[0] for text in found.odd] == ["CPUS", "ODD"]


def test_what_is_left_out_is_named() -> None:
    probe = {"exec": {"command": ["true"]}}
    container = {"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/v"}], "livenessProbe": probe}
    spec = {"initContainers": [{"name": "i"}], "containers": [container, {"name": "plain"}]}
    pod = msgspec.json.decode(json.dumps({"metadata": {"name": "p"}, "spec": spec}), type=Pod)
    assert left_out(pod) == ["init containers", "volumes of container main", "probes of container main"]
