"""What Kueue's conditions come to."""

import pytest

from rackyard.jobs.kubejob import Said, Workload
from rackyard.jobs.kubequeue import held

LACKS = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor gpu, 16 more"
YES = Said("True", "QuotaReserved", "")
PENDING = Said("False", "Pending", LACKS)


def workload(**conditions: Said) -> Workload:
    return Workload("w", "jobs", conditions=conditions)


CASES = [
    (workload(), "Kueue has not looked at it yet in queue jobs", "does Kueue run?"),
    (workload(QuotaReserved=PENDING), f"Kueue has not admitted it in queue jobs: {LACKS}", "wait for quota"),
    (
        workload(QuotaReserved=Said("False", "Inadmissible", "LocalQueue jobs doesn't exist")),
        "Kueue has not admitted it in queue jobs: LocalQueue jobs doesn't exist",
        "kubectl describe localqueue jobs",
    ),
    (workload(QuotaReserved=YES), "Kueue has reserved quota for it and is about to admit it", "within moments"),
    (
        Workload("w", conditions={"QuotaReserved": YES}, checks={"dws": Said("Pending", "", "no capacity yet")}),
        "Kueue has quota for it, and waits for admission check dws (Pending): no capacity yet",
        "kubectl describe admissioncheck dws",
    ),
    (
        workload(
            QuotaReserved=PENDING,
            Admitted=Said("False", "NoReservation", "The workload has no reservation"),
            Evicted=Said("True", "Preempted", "Preempted to accommodate a workload"),
            Preempted=Said("True", "InClusterQueue", "due to prioritization in the ClusterQueue"),
        ),
        f"Kueue took it off (Preempted): due to prioritization in the ClusterQueue; not admitted again: {LACKS}",
        "it comes back",
    ),
    (
        workload(
            Evicted=Said("True", "PodsReadyTimeout", "Exceeded the PodsReady timeout"),
            Preempted=Said("False", "QuotaReserved", "Previously: old"),
        ),
        "Kueue took it off (PodsReadyTimeout): Exceeded the PodsReady timeout",
        "finds no seat counts",
    ),
    (
        Workload("w", active=False, conditions={"Evicted": Said("True", "Deactivated", "requeued too often")}),
        "Kueue has deactivated it (Deactivated): requeued too often",
        "kubectl patch workload w",
    ),
]


@pytest.mark.parametrize(("given", "reason", "next_step"), CASES, ids=[case[1][:40] for case in CASES])
def test_the_condition_that_decides(given: Workload, reason: str, next_step: str) -> None:
    found = held(given)
    assert found is not None and found[0] == reason and next_step in found[1]


@pytest.mark.parametrize(
    "given",
    [
        workload(QuotaReserved=YES, Admitted=Said("True", "Admitted", "")),
        workload(QuotaReserved=YES, Admitted=Said("True", "Admitted", ""), Evicted=Said("False", "QuotaReserved", "")),
        workload(Finished=Said("True", "Succeeded", ""), QuotaReserved=PENDING),
    ],
)
def test_it_holds_nothing_that_it_let_in(given: Workload) -> None:
    assert held(given) is None
