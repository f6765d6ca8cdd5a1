"""From pods to gangs."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackyard.controller.kube.gangs import Gang, Unready, gang_of
from rackyard.controller.kube.objects import GANG, GATE, GPU, RANK, REQUEST, SEATS, SIZE, Pod, PodGroup


def pod(name: str, *, size: object = 2, gpus: object = 4, **more: Any) -> Pod:
    annotations = {} if size is None else {SIZE: str(size)}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "ml",
                "uid": f"uid-{name}",
                "labels": {GANG: "g", **more.get("labels", {})},
                "annotations": annotations | more.get("annotations", {}),
                "creationTimestamp": more.get("made", "2026-01-01T00:00:00Z"),
                "deletionTimestamp": more.get("deleted", ""),
            },
            "spec": {
                "containers": [{"resources": {"limits": {GPU: str(gpus)}}}],
                "schedulingGates": [{"name": gate} for gate in more.get("gates", (GATE,))],
                "priority": more.get("priority", 0),
            },
            "status": {"phase": more.get("phase", "Pending")},
        },
        Pod,
    )


def group(phase: str = "Inqueue", **more: Any) -> PodGroup:
    conditions = [{"type": "Unschedulable", "message": text} for text in more.get("told", ())]
    return msgspec.convert(
        {
            "metadata": {"name": "pg", "namespace": "ml"},
            "spec": {"minMember": more.get("members", 2), "queue": more.get("queue", "research")},
            "status": {"phase": phase, "conditions": conditions},
        },
        PodGroup,
    )


def only(*pods: Pod, group: PodGroup | None = None) -> Gang | Unready:
    return gang_of("ml/g", pods, group)


def test_pods_of_a_gang_in_the_order_of_their_ranks() -> None:
    found = only(*(pod(f"g-{n}", size=11) for n in (10, 2, 0, 1, 3, 4, 5, 6, 7, 8, 9)))
    assert isinstance(found, Gang) and found.key == "ml/g" and found.waits
    assert [each.metadata.name for each in found.pods] == [f"g-{n}" for n in range(11)]
    assert (found.request.gpus, found.request.gpus_per_node) == (44, 4)


@pytest.mark.parametrize("where", ["annotations", "labels"])
@pytest.mark.parametrize("key", [RANK, "batch.kubernetes.io/job-completion-index", "volcano.sh/task-index"])
def test_a_rank_that_is_said_comes_before_the_name(key: str, where: str) -> None:
    found = only(pod("w-0", **{where: {key: "1"}}), pod("w-1", **{where: {key: "0"}}))
    assert isinstance(found, Gang) and [each.metadata.name for each in found.pods] == ["w-1", "w-0"]


def test_what_the_gang_asks_for_is_an_annotation() -> None:
    asked = {REQUEST: json.dumps({"segment_gpus": 8, "spread": "spread"})}
    found = only(pod("g-0", annotations=asked), pod("g-1", annotations=asked))
    assert isinstance(found, Gang) and (found.request.segment_gpus, found.request.spread) == (8, "spread")


def test_its_priority_is_the_lowest_and_its_age_that_of_the_first() -> None:
    found = only(pod("g-0", priority=5, made="2026-01-02T00:00:00Z"), pod("g-1", priority=3))
    assert isinstance(found, Gang) and (found.priority, found.since) == (3, "2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("pods", "reason", "message"),
    [
        ([pod("g-0")], "MembersMissing", "1 of 2 pods are there"),
        ([pod("g-0", size=1), pod("g-1", size=1)], "TooMany", "2 pods say that the gang has 1"),
        ([pod("g-0", size=2), pod("g-1", size=3)], "UnknownSize", "the same number"),
        ([pod("g-0", size="two"), pod("g-1", size="two")], "UnknownSize", "number of pods"),
        ([pod("g-0", size=0)], "UnknownSize", "from 1"),
        ([pod("g-0", size="٣")], "UnknownSize", "from 1"),
        ([pod("g-0"), pod("h-0")], "NoRanks", "0 to 1"),
        ([pod("a"), pod("b")], "NoRanks", RANK),
        ([pod("g-0", gpus=4), pod("g-1", gpus=2)], "BadRequest", "the same number of GPUs"),
        ([pod("g-0", gpus=0), pod("g-1", gpus=0)], "BadRequest", "one or more"),
        ([pod("g-0", gpus="2k"), pod("g-1", gpus="2k")], "BadRequest", "2k"),
        ([pod("g-0", annotations={REQUEST: "{"}), pod("g-1", annotations={REQUEST: "{"})], "BadRequest", "Expecting"),
        ([pod("g-0", annotations={REQUEST: "{}"}), pod("g-1", annotations={REQUEST: "[]"})], "BadRequest", "differs"),
        ([pod(f"g-{n}", annotations={REQUEST: "[1]"}) for n in (0, 1)], "BadRequest", "JSON object"),
        ([pod(f"g-{n}", annotations={REQUEST: '{"color": 1}'}) for n in (0, 1)], "BadRequest", "no 'color'"),
        ([pod(f"g-{n}", annotations={REQUEST: '{"spread": "foo"}'}) for n in (0, 1)], "BadRequest", "spread"),
        ([pod(f"g-{n}", gates=(GATE, "kueue.x-k8s.io/topology")) for n in (0, 1)], "OtherGates", "kueue.x-k8s.io"),
        ([pod("g-0", phase="Succeeded"), pod("g-1")], "Finishing", "1 pods have ended, 1 run on"),
        ([pod("g-0", phase="Succeeded"), pod("g-1", phase="Failed")], "Ended", "its pods have ended"),
    ],
)
def test_what_is_not_ready_says_why(pods: list[Pod], reason: str, message: str) -> None:
    found = only(*pods)
    assert isinstance(found, Unready) and found.reason == reason
    assert message in found.message


def test_pods_that_are_done_or_go_away_do_not_count() -> None:
    gone = pod("g-1", deleted="2026-01-01T00:00:00Z")
    found = only(pod("g-0", phase="Failed"), gone, pod("g-2"), pod("g-3"))
    assert isinstance(found, Gang) and [each.metadata.name for each in found.pods] == ["g-2", "g-3"]
    left = only(pod("g-0"), gone)
    assert isinstance(left, Unready) and (left.reason, [each.metadata.name for each in left.pods]) == (
        "MembersMissing",
        ["g-0"],
    )


def test_a_pod_group_says_the_size_where_the_pods_do_not() -> None:
    pods = [pod(f"g-{n}", size=None) for n in range(3)]
    found = only(*pods, group=group(members=3))
    assert isinstance(found, Gang) and found.queue == "research"
    assert isinstance(only(*pods, group=group(members=4)), Unready)
    said = only(pod("g-0"), pod("g-1"), group=group(members=1))
    assert isinstance(said, Gang), "what the pods say comes first"
    assert isinstance(unsaid := only(*pods), Unready) and unsaid.reason == "UnknownSize"


@pytest.mark.parametrize("phase", ["", "Pending"])
def test_a_gang_of_volcanos_waits_until_its_queue_lets_it_in(phase: str) -> None:
    pods = pod("g-0"), pod("g-1")
    found = only(*pods, group=group(phase, told=("old", "queue resource quota insufficient")))
    assert isinstance(found, Gang) and found.waits
    assert "queue research" in found.kept_out and "quota insufficient" in found.kept_out and "old" not in found.kept_out
    assert isinstance(found := only(*pods, group=group()), Gang) and not found.kept_out


def test_what_was_let_go_is_not_held_back_by_its_queue() -> None:
    ours = {SEATS: "0:0:mlx5_0"}
    found = only(pod("g-0", gates=(), annotations=ours), pod("g-1"), group=group("Pending"))
    assert isinstance(found, Gang) and not found.waits


def test_of_a_gang_that_is_let_go_in_part_the_plan_knows_the_ranks() -> None:
    """The rank that a release writes may be one that another pod's name says."""
    ours = {SEATS: "0:0:mlx5_0", RANK: "1"}
    found = only(pod("g-0", gates=(), annotations=ours), pod("g-1"))
    assert isinstance(found, Gang) and len(found.pods) == 2


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(
    ["segment_gpus", "groups", "parallel", "spread", "copies", "exclusive", "rails", "rail", "exclude", "spares", "x"]
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(KEYS, JSONS, max_size=4).map(json.dumps) | st.text(max_size=20), st.text(max_size=8))
def test_no_annotation_is_too_strange(request: str, size: str) -> None:
    for said in (size, "2"):
        found = only(*(pod(f"g-{n}", size=said, annotations={REQUEST: request}) for n in (0, 1)))
        assert isinstance(found, Gang | Unready)
