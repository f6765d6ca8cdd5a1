"""The interval's formula: known values, and that it is the optimum it claims to be."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackyard.checkpoint import overhead, recommended_interval

mtbfs = st.floats(60, 1e7)


def test_close_to_young_for_small_stalls() -> None:
    # sqrt(2 * 2 s * 86400 s) = 587.9 s; Daly subtracts the stall and adds a third of it.
    assert recommended_interval(2, 86_400) == pytest.approx(587.88 - 2 + 2 / 3, abs=0.01)


@given(mtbf=mtbfs, share=st.floats(1e-6, 1e-3))
def test_neither_half_nor_double_loses_less(mtbf: float, share: float) -> None:
    stall = mtbf * share
    best = recommended_interval(stall, mtbf)
    for other in (best / 2, best * 2):
        assert overhead(best, stall, mtbf) < overhead(other, stall, mtbf)


@given(mtbf=mtbfs, share=st.floats(1e-6, 10))
def test_always_finite_positive_and_not_beyond_the_mtbf_by_much(mtbf: float, share: float) -> None:
    best = recommended_interval(share * mtbf, mtbf)
    assert math.isfinite(best) and 0 < best < 2 * mtbf


@pytest.mark.parametrize(("stall", "mtbf"), [(0, 1), (-1, 1), (1, 0), (math.nan, 1), (1, math.inf)])
def test_nonsense_is_refused(stall: float, mtbf: float) -> None:
    with pytest.raises(ValueError, match="finite number of seconds above 0"):
        recommended_interval(stall, mtbf)
