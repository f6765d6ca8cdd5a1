"""The bandwidths (GB/s per channel) that NCCL's graph search tries, highest first.

Source: NCCL 2.30.7 and 2.29.7, `src/graph/search.cc`. The least compute capability of the system's GPUs chooses the
list; one list is for searches within a system, the other for those that include the network.
"""

from rackyard.nccl.numbers import as_float


def _floats(text: str) -> tuple[float, ...]:
    return tuple(as_float(float(word)) for word in text.split())


_INTRA = _floats("40 30 20 18 15 12 10 9 7 6 5 4 3")
_INTER = _floats("48 30 28 24 20 18 15 12 10 9 7 6 5 4 3 2.4 1.2 0.24 0.12")
_INTRA_SM90 = _floats("60 50 40 30 24 20 15 12 11 6 3")
_INTER_SM90 = _floats("48 45 42 40 30 24 22 20 17.5 15 12 6 3 2.4 1.2 0.24 0.12")
_INTRA_SM100 = _floats("90 80 70 60 50 45 40 30 24 20 19 18")
_INTER_SM100 = _floats("96 86 80 48 45.1 42 40 30 24 22 20 17.5 15 12 6 3 2.4 1.2 0.24 0.12")


def speeds(min_sm: int, *, inter: bool, has_dev: bool) -> tuple[float, ...]:
    """The list for a system whose least compute capability (times 10) is ``min_sm``.

    ``has_dev`` stands for 2.30 and later, where 86 GB/s came in.
    """
    if min_sm >= 100:
        if inter and not has_dev:
            return tuple(speed for speed in _INTER_SM100 if speed != 86.0)
        return _INTER_SM100 if inter else _INTRA_SM100
    if min_sm >= 90:
        return _INTER_SM90 if inter else _INTRA_SM90
    return _INTER if inter else _INTRA
