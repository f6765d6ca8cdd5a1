"""What a node says, as signals, doubts and marks."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackyard.controller.kube.objects import FAULT, Mark, Node
from rackyard.controller.kube.signals import CONDITIONS, MAINTENANCE, Doubt, Kind, Tables, instant, read, stamp

AT = "2026-11-30T12:00:00Z"
SECONDS = 1796040000.0


def node(
    conditions: list[dict[str, str]],
    taints: list[dict[str, str]] | None = None,
    annotations: dict[str, str] | None = None,
    ready: str = "True",
    **spec: Any,
) -> Node:
    whole = [{"type": "Ready", "status": ready, "lastTransitionTime": AT}] if ready else []
    return msgspec.convert(
        {
            "metadata": {"name": "r01-t01", "uid": "u", "resourceVersion": "7", "annotations": annotations or {}},
            "spec": {"taints": taints or [], **spec},
            "status": {"conditions": whole + conditions},
        },
        Node,
    )


def condition(kind: str, status: str = "True", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "Because", "message": message, "lastTransitionTime": AT}


def kinds(found: Node, tables: Tables | None = None) -> list[Kind]:
    return [signal.kind for signal in read(found, tables or Tables()).signals]


def test_a_signal_says_which_condition_since_when_and_what() -> None:
    (signal,) = read(node([condition("rackyard.io/GPUFault", message="GPU 2 fell\n off the bus")]), Tables()).signals
    assert (signal.kind, signal.origin, signal.since) == (Kind.GPU, "rackyard.io/GPUFault", SECONDS)
    assert signal.line == f"r01-t01: rackyard.io/GPUFault since {AT}: GPU 2 fell off the bus"


@pytest.mark.parametrize(
    "name", ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "SomethingElse", "Ready"]
)
def test_pressure_and_what_nobody_knows_is_no_fault(name: str) -> None:
    assert name not in CONDITIONS
    assert read(node([condition(name)] if name != "Ready" else []), Tables()).quiet


def test_false_is_fine_and_unknown_is_a_doubt() -> None:
    fine = read(node([condition("KernelDeadlock", "False")]), Tables())
    assert fine.quiet and not fine.doubts
    unknown = read(node([condition("KernelDeadlock", "Unknown", "nobody looks")]), Tables())
    assert not unknown.signals and unknown.doubts == (Doubt("KernelDeadlock is Unknown: nobody looks", SECONDS),)


@pytest.mark.parametrize(("ready", "lost"), [("True", False), ("False", True), ("Unknown", True)])
def test_a_heartbeat_is_lost_when_ready_is_false_or_unknown(ready: str, lost: bool) -> None:
    found = read(node([], ready=ready), Tables())
    assert found.ready is not lost
    assert [s.origin for s in found.signals] == ([f"Ready={ready}"] if lost else [])


def test_a_node_of_which_nobody_said_that_it_is_ready_is_a_doubt() -> None:
    found = read(node([], ready=""), Tables())
    assert not found.ready and found.doubts and not found.signals


def test_taints() -> None:
    gone = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": AT}
    out = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown"}
    assert kinds(node([], [gone, {"key": "nvidia.com/gpu", "value": "present"}], ready="Unknown")) == [Kind.LOST] * 2
    assert kinds(node([], [out])) == [Kind.OUT]
    assert kinds(node([], [{"key": "nvidia.com/gpu-nvlink-error"}])) == [Kind.NVLINK]
    stale = read(node([], [gone]), Tables())
    assert not stale.signals and stale.doubts == (Doubt("taint node.kubernetes.io/unreachable, though Ready"),)


def test_tables_can_be_extended() -> None:
    tables = Tables(conditions={**CONDITIONS, "OurCheck": Kind.NIC}, taints={"example.com/bad": Kind.GPU})
    assert kinds(node([condition("OurCheck")], [{"key": "example.com/bad"}]), tables) == [Kind.NIC, Kind.GPU]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("ErrorCode:79 PCI:0000:ef:00 NVRM: Xid (PCI:0000:ef:00): 79, GPU has fallen off the bus", Kind.GPU),
        ("NVRM: Xid (PCI:0008:06:00): 149, NETIR_LINK_DOWN Fatal XC0 i0 Link 14", Kind.NVLINK),
        ("Xid 145 on all GPUs", Kind.FABRIC),
        ("ErrorCode:145 GPU:0; ErrorCode:79 GPU:0", Kind.GPU),
        ("Xid 31: MMU fault", None),
        ("no code at all", Kind.GPU),
    ],
)
def test_the_xid_says_what_a_gpu_error_is(message: str, kind: Kind | None) -> None:
    assert kinds(node([condition("SysLogsXIDError", message=message)])) == ([kind] if kind else [])


def test_an_application_s_xid_is_no_fault_and_still_not_well() -> None:
    found = read(node([condition("SysLogsXIDError", message="Xid 13")]), Tables())
    assert not found.signals and found.doubts


def test_maintenance_is_open_or_until() -> None:
    def until(text: str) -> float:
        return read(node([], annotations={MAINTENANCE: text}), Tables()).maintenance

    assert until("") == until("true") == math.inf
    assert until(AT) == SECONDS
    assert read(node([]), Tables()).maintenance == -math.inf


def test_our_mark_is_read_and_one_that_is_not_ours_is_a_mark_all_the_same() -> None:
    mark = Mark("tray", "r01-t01", "gone", AT)
    text = msgspec.json.encode(mark).decode()
    assert read(node([], annotations={FAULT: text}, unschedulable=True), Tables()).mark == mark
    assert read(node([], annotations={FAULT: "{"}), Tables()).mark == Mark("", "", "", "")


def test_when_a_node_was_cordoned() -> None:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": AT}
    found = read(node([], [taint], unschedulable=True), Tables())
    assert found.cordoned and found.cordoned_at == SECONDS and not found.signals


@given(st.text())
def test_any_text_may_stand_for_a_time(text: str) -> None:
    found = instant(text)
    assert found is None or isinstance(found, float)


@given(st.integers(0, 4_000_000_000))
def test_times_come_back(at: int) -> None:
    assert instant(stamp(at)) == at
