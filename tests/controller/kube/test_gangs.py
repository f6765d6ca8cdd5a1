"""From pods to gangs."""

import json
from typing import Any

import msgspec
import pytest

from rackyard.controller.kube.gangs import Gang, Unready, gangs
from rackyard.controller.kube.objects import GANG, GPU, RANK, REQUEST, SIZE, Pod


def pod(name: str, *, size: object = 2, gpus: object = 4, **more: Any) -> Pod:
    annotations = {SIZE: str(size), **more.get("annotations", {})}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "ml",
                "uid": f"uid-{name}",
                "labels": {GANG: "g", **more.get("labels", {})},
                "annotations": annotations,
                "deletionTimestamp": more.get("deleted", ""),
            },
            "spec": {"containers": [{"resources": {"limits": {GPU: str(gpus)}}}]},
            "status": {"phase": more.get("phase", "Pending")},
        },
        Pod,
    )


def only(*pods: Pod) -> Gang | Unready:
    (found,) = gangs(pods)
    return found


def test_pods_of_a_gang_in_the_order_of_their_ranks() -> None:
    found = only(*(pod(f"g-{n}", size=11) for n in (10, 2, 0, 1, 3, 4, 5, 6, 7, 8, 9)))
    assert isinstance(found, Gang) and found.key == "ml/g"
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


@pytest.mark.parametrize(
    ("pods", "reason", "message"),
    [
        ([pod("g-0")], "MembersMissing", "1 of 2 pods are there"),
        ([pod("g-0", size=1), pod("g-1", size=1)], "TooMany", "2 pods say that the gang has 1"),
        ([pod("g-0", size=2), pod("g-1", size=3)], "UnknownSize", "the same number"),
        ([pod("g-0", size="two"), pod("g-1", size="two")], "UnknownSize", "number of pods"),
        ([pod("g-0"), pod("h-0")], "NoRanks", "0 to 1"),
        ([pod("a"), pod("b")], "NoRanks", RANK),
        ([pod("g-0", gpus=4), pod("g-1", gpus=2)], "BadRequest", "the same number of GPUs"),
        ([pod("g-0", gpus=0), pod("g-1", gpus=0)], "BadRequest", "one or more"),
        ([pod("g-0", annotations={REQUEST: "{"}), pod("g-1", annotations={REQUEST: "{"})], "BadRequest", "Expecting"),
        ([pod("g-0", annotations={REQUEST: "{}"}), pod("g-1", annotations={REQUEST: "[]"})], "BadRequest", "differs"),
        ([pod(f"g-{n}", annotations={REQUEST: '{"color": 1}'}) for n in (0, 1)], "BadRequest", "no 'color'"),
        ([pod(f"g-{n}", annotations={REQUEST: '{"spread": "foo"}'}) for n in (0, 1)], "BadRequest", "spread"),
    ],
)
def test_what_is_not_ready_says_why(pods: list[Pod], reason: str, message: str) -> None:
    found = only(*pods)
    assert isinstance(found, Unready) and found.reason == reason
    assert message in found.message


def test_pods_that_are_done_or_go_away_do_not_count() -> None:
    assert gangs([pod("g-0", phase="Succeeded"), pod("g-1", deleted="2026-01-01T00:00:00Z")]) == []
    assert gangs([msgspec.convert({"metadata": {"name": "x", "namespace": "ml"}}, Pod)]) == []
