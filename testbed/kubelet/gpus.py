"""Which GPUs of a node a pod gets: whole GPUs, lowest index first, never one that another pod still has."""

from collections.abc import Iterable, Mapping, Sequence

Given = dict[str, tuple[int, ...]]
"""GPU indices by container."""


def assign(wanted: Mapping[str, int], usable: Sequence[int], taken: Iterable[Given]) -> Given | None:
    """Indices for each container that asks for some; None when too few of the `usable` ones are free."""
    held = {index for given in taken for indices in given.values() for index in indices}
    free = [index for index in sorted(set(usable)) if index not in held]
    if sum(wanted.values()) > len(free):
        return None
    given: Given = {}
    for container, count in wanted.items():
        given[container], free = tuple(free[:count]), free[count:]
    return given


def variables(indices: Sequence[int]) -> dict[str, str]:
    """What tells a process its GPUs. One without any sees none: an unset variable would mean all of the machine's."""
    text = ",".join(str(index) for index in indices)
    return {"CUDA_VISIBLE_DEVICES": text, "NVIDIA_VISIBLE_DEVICES": text or "void"}
