"""Volcano without its admission webhooks: whoever makes a Job gives queue, minAvailable and schedulerName."""

from testbed import crds
from testbed.api import Api, Refused, until
from testbed.families import built, family
from testbed.layout import Layout, Plan

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"

CONFIGURATION = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
  - name: network-topology-aware
"""
"""Volcano's usual plugins, and the one that reads HyperNodes."""


def setup(api: Api, layout: Layout, plan: Plan) -> None:
    """What must be there before Volcano's programs start."""
    text = CONFIGURATION if plan.options.volcano is None else plan.options.volcano
    (layout.folder / "volcano-scheduler.conf").write_text(text, encoding="utf-8")
    crds.namespace(api, "volcano-system")
    crds.established(api, crds.create(api, built(family("volcano")) / "crds"))


def settled(api: Api) -> None:
    """Wait for the queues that Volcano makes when it starts: without them a Job would be refused its place."""

    def check() -> bool:
        try:
            return {"root", "default"} <= {queue["metadata"]["name"] for queue in api.get(QUEUES)["items"]}
        except Refused:
            return False

    until("Volcano's queues", check)
