"""What the webhooks and settings of JobSet, LeaderWorkerSet and Trainer become without a service network."""

from testbed.layout import PORTS, Plan
from testbed.operators import Operator, configuration, webhooks
from testbed.options import Options

JOBSET = Operator("jobset", "config.jobset.x-k8s.io", "internalCertManagement", "jobset.sigs.k8s.io/jobset-name")
MANIFEST = """
kind: ValidatingWebhookConfiguration
metadata: {name: validating-webhook-configuration}
webhooks:
- name: a
  clientConfig: {service: {name: s, namespace: system, path: /validate-a}}
  rules: [{apiGroups: [jobset.x-k8s.io], resources: [jobsets]}]
- name: b
  clientConfig: {service: {name: s, namespace: system, path: /validate--v1-pod}}
  rules: [{apiGroups: [""], resources: [pods]}]
---
kind: Service
"""


def test_webhooks_are_called_on_loopback_and_pods_of_others_are_left_out() -> None:
    ((path, found),) = webhooks(JOBSET, MANIFEST, "https://127.0.0.1:9443", "Q0E=")
    assert (path, found["metadata"]["name"]) == ("validatingwebhookconfigurations", "testbed-jobset")
    own, pods = found["webhooks"]
    assert own["clientConfig"] == {"url": "https://127.0.0.1:9443/validate-a", "caBundle": "Q0E="}
    assert "objectSelector" not in own
    assert pods["objectSelector"]["matchExpressions"] == [{"key": JOBSET.pods, "operator": "Exists"}]


def test_they_listen_on_loopback_and_make_no_certificates() -> None:
    plan = Plan("mark", Options(), {name: 20_000 + at for at, name in enumerate(PORTS)})
    told = configuration(JOBSET, plan, "/certs")
    assert told["internalCertManagement"] == {"enable": False}
    assert told["webhook"] == {"host": "127.0.0.1", "port": plan.ports["jobset-webhook"], "certDir": "/certs"}
    assert told["health"]["healthProbeBindAddress"].startswith("127.0.0.1:")
    assert "certDir" not in configuration(JOBSET, plan, None)["webhook"]
