"""JobSet, LeaderWorkerSet and Kubeflow Trainer: what they need before they start.

Their own certificate management writes a service's name into webhook configurations, and nothing here answers by such
a name. It is off: their webhooks are called at 127.0.0.1 with the API server's certificate, as Kueue's are.
"""

import base64
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ruamel.yaml import YAML

from testbed import crds
from testbed.api import Api, Refused, until
from testbed.families import built, family
from testbed.layout import Layout, Plan

LOOPBACK = "127.0.0.1"

_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_KINDS = {
    "MutatingWebhookConfiguration": "mutatingwebhookconfigurations",
    "ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
}


@dataclass(frozen=True, slots=True)
class Operator:
    """What one differs in from the others."""

    name: str
    group: str
    """Of its configuration file."""
    own_certificates: str
    """The key that its own certificate management goes by in the configuration file."""
    pods: str = ""
    """The label of the pods that its webhooks are for: others must not wait for them."""


_OPERATORS = (
    Operator("jobset", "config.jobset.x-k8s.io", "internalCertManagement", "jobset.sigs.k8s.io/jobset-name"),
    Operator("lws", "config.lws.x-k8s.io", "internalCertManagement", "leaderworkerset.sigs.k8s.io/name"),
    Operator("trainer", "config.trainer.kubeflow.org", "certManagement"),
)


def _setup(operator: Operator, api: Api, layout: Layout, plan: Plan) -> None:
    folder = built(family(operator.name))
    crds.established(api, crds.create(api, folder / "crds"))
    # Where Trainer looks, in its folder for temporary files (programs.py); the others are told.
    certs = layout.certs / operator.name / "k8s-webhook-server" / "serving-certs"
    certs.mkdir(parents=True)
    for ours, theirs in (("apiserver.crt", "tls.crt"), ("apiserver.key", "tls.key")):
        shutil.copy(layout.certs / ours, certs / theirs)
    said = configuration(operator, plan, None if operator.name == "trainer" else str(certs))
    (layout.folder / f"{operator.name}.yaml").write_text(json.dumps(said), encoding="utf-8")
    url = f"https://{LOOPBACK}:{plan.ports[f'{operator.name}-webhook']}"
    ca = base64.b64encode((layout.certs / "apiserver.crt").read_bytes()).decode("ascii")
    text = (folder / "webhooks" / "manifests.yaml").read_text(encoding="utf-8")
    for path, body in webhooks(operator, text, url, ca):
        api.post(f"{_ADMISSION}/{path}", body)


SETUP: dict[str, Callable[[Api, Layout, Plan], None]] = {each.name: partial(_setup, each) for each in _OPERATORS}
"""What must be there before each starts."""


def configuration(operator: Operator, plan: Plan, certs: str | None) -> dict[str, Any]:
    """The configuration file; no metrics are served."""
    webhook = {"host": LOOPBACK, "port": plan.ports[f"{operator.name}-webhook"]}
    return {
        "apiVersion": f"{operator.group}/v1alpha1",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{plan.ports[operator.name]}"},
        "metrics": {"bindAddress": "0"},
        "webhook": webhook if certs is None else {**webhook, "certDir": certs},
        "leaderElection": {"leaderElect": False},
        operator.own_certificates: {"enable": False},
        "clientConnection": {"qps": 2000, "burst": 2000},
    }


def webhooks(operator: Operator, text: str, url: str, ca: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The webhook configurations of a manifest, to be created at (path), called at `url`."""
    for found in YAML(typ="safe").load_all(text):
        if found and found.get("kind") in _KINDS:
            hooks = [_local(operator, hook, url, ca) for hook in found["webhooks"]]
            yield _KINDS[found["kind"]], {**found, "metadata": {"name": f"testbed-{operator.name}"}, "webhooks": hooks}


def _local(operator: Operator, hook: Mapping[str, Any], url: str, ca: str) -> dict[str, Any]:
    local = {**hook, "clientConfig": {"url": url + hook["clientConfig"]["service"]["path"], "caBundle": ca}}
    if any("pods" in rule["resources"] for rule in hook["rules"]):
        local["objectSelector"] = {"matchExpressions": [{"key": operator.pods, "operator": "Exists"}]}
    return local


def lws_settled(api: Api) -> None:
    """Wait until LeaderWorkerSet's webhooks answer: it says that it is ready before that."""
    template = {"spec": {"containers": [{"name": "main", "image": "none"}]}}
    body = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "asked-for-nothing"},
        "spec": {"leaderWorkerTemplate": {"workerTemplate": template}},
    }
    path = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets?dryRun=All"

    def check() -> bool:
        try:
            api.post(path, body)
        except Refused as error:
            if error.code != 500:  # InternalError: failed calling webhook
                raise
            return False
        return True

    until("LeaderWorkerSet's webhooks", check)
