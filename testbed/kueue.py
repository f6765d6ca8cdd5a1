"""Kueue on one machine: its webhooks are called at 127.0.0.1, with the API server's own certificate.

Kueue insists on an internal certificate authority that writes into webhook configurations of fixed names and into its
custom resource definitions, and that waits for a certificate on disk. It is given the API server's certificate, and
webhook configurations of other names that trust that; the definitions get the field that it wants to write to. Their
older version is taken out: nothing could convert it.
"""

import base64
import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ruamel.yaml import YAML

from testbed import crds
from testbed.api import JSON_PATCH, Api, Refused, until
from testbed.families import built, family
from testbed.layout import Layout, Plan

LOOPBACK = "127.0.0.1"
NAMESPACE = "kueue-system"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"

_CONVERTED = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
_INTEGRATIONS = {
    "jobset": ("jobset.x-k8s.io", "jobset.x-k8s.io/jobset"),
    "trainer": ("trainer.kubeflow.org", "trainer.kubeflow.org/trainjob"),
}
"""API group and framework that Kueue takes charge of beside Jobs, where the part is there."""
_OURS = ("kueue.x-k8s.io", "batch")
"""API groups whose webhooks are always registered."""

_ADMISSION = "/apis/admissionregistration.k8s.io/v1"


def setup(api: Api, layout: Layout, plan: Plan) -> None:
    """What must be there before Kueue starts."""
    folder = built(family("kueue"))
    crds.namespace(api, NAMESPACE)
    names = crds.create(api, folder / "crds")
    url = f"https://{LOOPBACK}:{plan.ports['kueue-webhook']}"
    for kind in _CONVERTED:
        api.patch(f"{crds.PATH}/{kind}.kueue.x-k8s.io", _without_older_version(f"{url}/convert"), JSON_PATCH)
    crds.established(api, names)
    secret = {"metadata": {"name": "kueue-webhook-server-cert"}, "type": "Opaque"}
    api.post(f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    certs = layout.certs / "kueue"
    certs.mkdir()
    for ours, theirs in (("apiserver.crt", "tls.crt"), ("apiserver.key", "tls.key")):
        shutil.copy(layout.certs / ours, certs / theirs)
    (layout.folder / "kueue.yaml").write_text(json.dumps(configuration(layout, plan)), encoding="utf-8")
    ca = base64.b64encode((layout.certs / "apiserver.crt").read_bytes()).decode("ascii")
    text = (folder / "webhooks" / "manifests.yaml").read_text(encoding="utf-8")
    groups = [_INTEGRATIONS[part][0] for part in plan.options.parts if part in _INTEGRATIONS]
    for path, body in webhooks(text, url, ca, (*_OURS, *groups)):
        api.post(f"{_ADMISSION}/{path}", body)


def settled(api: Api) -> None:
    """Wait until Kueue's webhooks answer: it says that it is ready a little before that."""
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "asked-for-nothing"},
        "spec": {"namespaceSelector": {}},
    }

    def check() -> bool:
        try:
            api.post("/apis/kueue.x-k8s.io/v1beta2/clusterqueues?dryRun=All", queue)
        except Refused as error:
            if error.code != 500:  # InternalError: failed calling webhook
                raise
            return False
        return True

    until("Kueue's webhooks", check)


def configuration(layout: Layout, plan: Plan) -> dict[str, Any]:
    """Kueue's configuration file (config.kueue.x-k8s.io/v1beta2)."""
    ports = plan.ports
    more = [_INTEGRATIONS[part][1] for part in plan.options.parts if part in _INTEGRATIONS]
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{ports['kueue']}"},
        "metrics": {"bindAddress": f"{LOOPBACK}:{ports['kueue-metrics']}"},
        "webhook": {"host": LOOPBACK, "port": ports["kueue-webhook"], "certDir": str(layout.certs / "kueue")},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 2000, "burst": 2000},
        "integrations": {"frameworks": ["batch/job", *more]},
        # The visibility server keeps its certificates at a fixed path outside the cluster's folder.
        "featureGates": {"VisibilityOnDemand": False, **plan.options.kueue_gates},
    }


def webhooks(text: str, url: str, ca: str, groups: Collection[str] = _OURS) -> Iterator[tuple[str, dict[str, Any]]]:
    """The webhook configurations of Kueue's manifest, to be created at (path): those of `groups`, called at `url`."""
    kinds = {
        "MutatingWebhookConfiguration": ("mutatingwebhookconfigurations", "testbed-kueue-mutating"),
        "ValidatingWebhookConfiguration": ("validatingwebhookconfigurations", "testbed-kueue-validating"),
    }
    for found in YAML(typ="safe").load_all(text):
        if found and found.get("kind") in kinds:
            path, name = kinds[found["kind"]]
            hooks = [_local(hook, url, ca) for hook in found["webhooks"] if _is_of(hook, groups)]
            yield path, {**found, "metadata": {"name": name}, "webhooks": hooks}


def _is_of(hook: Mapping[str, Any], groups: Collection[str]) -> bool:
    return all(group in groups for rule in hook["rules"] for group in rule["apiGroups"])


def _local(hook: Mapping[str, Any], url: str, ca: str) -> dict[str, Any]:
    called = {"url": url + hook["clientConfig"]["service"]["path"], "caBundle": ca}
    local = {**hook, "clientConfig": called}
    if not any("kueue.x-k8s.io" in rule["apiGroups"] for rule in hook["rules"]):
        # Jobs that Kueue has nothing to do with must not wait for it.
        local["objectSelector"] = {"matchExpressions": [{"key": QUEUE_LABEL, "operator": "Exists"}]}
    return local


def _without_older_version(url: str) -> list[dict[str, Any]]:
    review = {"clientConfig": {"url": url}, "conversionReviewVersions": ["v1"]}
    return [
        {"op": "test", "path": "/spec/versions/0/name", "value": "v1beta1"},
        {"op": "remove", "path": "/spec/versions/0"},
        {"op": "add", "path": "/spec/conversion", "value": {"strategy": "Webhook", "webhook": review}},
    ]
