"""The ComputeDomain of a gang."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from rackyard.controller.kube.domains import ASKED, clash, compute_domain, spread
from rackyard.controller.kube.kinds import LWS, LWS_GROUP, LWS_INDEX
from rackyard.controller.kube.objects import GANG, GATE, Pod
from rackyard.fabric import simulate

LABELS = {GANG: "g"}


def pod(
    name: str,
    asked: str | None = "g-channel",
    claims: tuple[str, ...] = ("g-channel",),
    labels: Mapping[str, str] = LABELS,
) -> Pod:
    data = {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "labels": labels,
            "annotations": {ASKED: asked} if asked is not None else {},
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j", "controller": True}
            ],
        },
        "spec": {
            "schedulingGates": [{"name": GATE}],
            "resourceClaims": [{"name": f"c{n}", "resourceClaimTemplateName": each} for n, each in enumerate(claims)],
        },
    }
    return msgspec.convert(data, Pod)


def made(*pods: Pod) -> dict[str, Any]:
    found = compute_domain(pods)
    assert found is not None
    return found


def test_a_gang_that_asks_gets_one_that_goes_with_it() -> None:
    assert made(pod("g-0"), pod("g-1", claims=("gpu", "g-channel"))) == {
        "apiVersion": "resource.nvidia.com/v1beta1",
        "kind": "ComputeDomain",
        "metadata": {
            "name": "g",
            "namespace": "ml",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "uid-j"}],
        },
        "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": "g-channel"}}},
    }


def test_a_gang_that_does_not_ask_gets_none() -> None:
    assert compute_domain([pod("g-0", asked=None), pod("g-1", asked=None, claims=())]) is None
    assert compute_domain([]) is None


@pytest.mark.parametrize(
    ("pods", "message"),
    [
        ([pod("g-0"), pod("g-1", asked=None)], "must be the same on all pods"),
        ([pod("g-0"), pod("g-1", claims=("gpu",))], "1 of 2 pods have no claim from it: spec.resourceClaims of ml/g-1"),
        ([pod("g-0", claims=())], "needs resourceClaimTemplateName: g-channel"),
        ([pod("g-0", asked="No_Name", claims=("No_Name",))], "'No_Name' can't name an object"),
        ([pod("g-0", labels={GANG: "Big_Gang"})], "gang 'Big_Gang' can't name an object"),
    ],
)
def test_what_is_wrong_is_said(pods: list[Pod], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compute_domain(pods)


def test_the_groups_of_a_leaderworkerset_share_one() -> None:
    """Their pods have one template, so all their claims are from one resource claim template."""
    groups = [[pod(f"lw-{g}", labels={LWS: "lw", LWS_GROUP: str(g), LWS_INDEX: "0"})] for g in (0, 1)]
    first, second = (made(*group) for group in groups)
    assert first == second and first["metadata"]["name"] == "lw"
    assert clash(second, [first]) == ""


def test_two_can_not_make_the_same_template_nor_bear_the_same_name() -> None:
    wanted = made(pod("g-0"))
    other = made(pod("h-0", labels={GANG: "h"}))
    assert "ComputeDomain h makes template 'g-channel' already" in clash(wanted, [other])
    changed = made(pod("g-0", asked="x", claims=("x",)))
    assert "makes template 'x', not 'g-channel'" in clash(wanted, [changed])
    going = {**wanted, "metadata": {**wanted["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert "still being deleted" in clash(wanted, [going])
    assert clash(wanted, [made(pod("i-0", "i-channel", ("i-channel",), labels={GANG: "i"}))]) == ""


def test_a_gang_over_several_nvlink_domains_is_told() -> None:
    site = simulate(6, 2)
    assert spread(["r01-t01", "r01-t02"], site) == ""
    told = spread(["r01-t01", "r01-t02", "r02-t01"], site)
    assert told.startswith(
        "its ComputeDomain spans 2 NVLink domains, and memory is shared within each only: 2 pods in "
    )
    assert spread([node.name for node in site.nodes], site).endswith("and 2 more")
