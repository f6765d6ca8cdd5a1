"""The fabric health mask: both healthy values, every condition, and the words that stand for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackyard.fabric import healthmask as masks


@pytest.mark.parametrize("mask", [0xAA, 0x1AA, 0x11AA, 0x51AA])
def test_healthy_masks(mask: int) -> None:
    assert masks.healthy(mask) is True
    assert masks.faults(mask) == ()


def test_nothing_reported_is_not_healthy() -> None:
    assert masks.healthy(0) is None
    assert set(masks.decode(0).values()) == {masks.NOT_SUPPORTED}


@pytest.mark.parametrize(
    ("mask", "fault"),
    [
        (0x1A9, "degraded_bandwidth"),
        (0x1A6, "route_recovery"),
        (0x19A, "route_unhealthy"),
        (0x16A, "access_timeout_recovery"),
        (0x4AA, "incorrect_configuration: no partition"),
        (0x5AA, "incorrect_configuration: insufficient nvlinks"),
        (0x8AA, "incorrect_configuration: gpu state invalid"),
        (0xFAA, "incorrect_configuration: unknown (15)"),
        (0x21AA, "partition_assigned: FALSE"),
        (0x81AA, "fabric_manager: disconnected"),
        (0x1AB, "degraded_bandwidth: unknown (3)"),
    ],
)
def test_each_fault_is_named(mask: int, fault: str) -> None:
    assert masks.faults(mask) == (fault,)
    assert masks.healthy(mask) is False


def test_decode_names_each_condition() -> None:
    assert masks.decode(0xAA) == {
        "degraded_bandwidth": "FALSE",
        "route_recovery": "FALSE",
        "route_unhealthy": "FALSE",
        "access_timeout_recovery": "FALSE",
        "incorrect_configuration": "not supported",
        "partition_assigned": "not supported",
        "fabric_manager": "not supported",
    }


@given(st.integers(0, 0xFFFF))
def test_encode_undoes_decode(mask: int) -> None:
    named = masks.decode(mask)
    if not any(word.startswith("unknown") for word in named.values()):
        assert masks.encode(named) == mask


@pytest.mark.parametrize("conditions", [{"temperature": "TRUE"}, {"route_unhealthy": "maybe"}])
def test_encode_refuses_what_it_does_not_know(conditions: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"health condition|never"):
        masks.encode(conditions)


def test_words_of_a_healthy_gpu_are_the_mask_of_one() -> None:
    rows = {
        "Bandwidth": "Full",
        "Route Recovery in progress": "False",
        "Route Unhealthy": "False",
        "Access Timeout Recovery": "False",
    }
    assert masks.mask_of_words(rows) == 0xAA
    assert masks.mask_of_words({**rows, "Incorrect Configuration": "None"}) == 0x1AA
    assert masks.mask_of_words({**rows, "Bandwidth": "Degraded"}) == 0xA9
    assert masks.mask_of_words({"Summary": "Healthy"}) is None


def test_a_configuration_fault_without_a_number_stays_a_fault() -> None:
    mask = masks.mask_of_words({"Incorrect Configuration": "Something New"})
    assert mask is not None
    assert masks.healthy(mask) is False
