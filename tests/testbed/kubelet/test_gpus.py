"""GPUs are given whole, and never twice."""

import random

from hypothesis import given
from hypothesis import strategies as st

from testbed.kubelet.gpus import Given, assign, variables


def test_the_lowest_free_ones_in_the_order_of_containers() -> None:
    assert assign({"a": 1, "b": 2, "c": 0}, (0, 1, 2, 3), [{"x": (1,)}]) == {"a": (0,), "b": (2, 3), "c": ()}


def test_too_few_is_none_at_all() -> None:
    assert assign({"a": 2}, (0, 1, 3), [{"x": (0,)}, {"y": (1,)}]) is None


def test_a_sick_gpu_is_not_given() -> None:
    assert assign({"a": 3}, (0, 1, 3), []) == {"a": (0, 1, 3)}


def test_what_a_process_is_told() -> None:
    assert variables((1, 3)) == {"CUDA_VISIBLE_DEVICES": "1,3", "NVIDIA_VISIBLE_DEVICES": "1,3"}
    assert variables(()) == {"CUDA_VISIBLE_DEVICES": "", "NVIDIA_VISIBLE_DEVICES": "void"}


@given(st.lists(st.integers(0, 4), max_size=30), st.integers(0, 2**32))
def test_no_gpu_is_ever_given_twice(sizes: list[int], seed: int) -> None:
    draw = random.Random(seed)
    held: list[Given] = []
    for size in sizes:
        found = assign({"main": size}, range(4), held)
        used = [index for one in held for index in one["main"]]
        assert (found is None) == (len(used) + size > 4)
        if found is not None:
            held.append(found)
        elif held:
            held.pop(draw.randrange(len(held)))
        used = [index for one in held for index in one["main"]]
        assert len(used) == len(set(used))
