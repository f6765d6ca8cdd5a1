"""What Kueue's webhooks become when there is no service network."""

from testbed.kueue import webhooks

MANIFEST = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: mutating-webhook-configuration}
webhooks:
- name: a
  clientConfig: {service: {name: s, namespace: system, path: /mutate-a}}
  rules: [{apiGroups: [kueue.x-k8s.io], resources: [clusterqueues]}]
- name: b
  clientConfig: {service: {name: s, namespace: system, path: /mutate-b}}
  rules: [{apiGroups: [ray.io], resources: [rayjobs]}]
- name: c
  clientConfig: {service: {name: s, namespace: system, path: /mutate-c}}
  rules: [{apiGroups: [batch], resources: [jobs]}]
---
kind: Service
"""


def test_webhooks_are_called_on_loopback_and_others_integrations_are_left_out() -> None:
    ((path, found),) = webhooks(MANIFEST, "https://127.0.0.1:9443", "Q0E=")
    assert path == "mutatingwebhookconfigurations"
    assert found["metadata"]["name"] == "testbed-kueue-mutating"
    queue, job = found["webhooks"]
    assert queue["clientConfig"] == {"url": "https://127.0.0.1:9443/mutate-a", "caBundle": "Q0E="}
    assert "objectSelector" not in queue
    assert job["objectSelector"]["matchExpressions"][0]["operator"] == "Exists"
