import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackyard.units import (
    format_duration,
    format_size,
    format_steps,
    parse_duration,
    parse_size,
    parse_steps,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60), ("10m", 600), ("1.5h", 5400), ("2d", 172_800), ("500ms", 0.5), (" 3 s ", 3), ("0s", 0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "60", "s", "-1s", "1e3s", "1 hour", "1m30s", "nans", "99999d", "٣s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|longer"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=10**14).map(lambda micros: micros / 1e6))
def test_a_formatted_duration_parses_back(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (60, "1m"), (90, "90s"), (0.25, "0.25s"), (3600, "1h"), (86400, "1d")]
)
def test_formatted_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(("text", "size"), [("512MiB", 512 << 20), ("2 GB", 2 * 10**9), ("1.5KiB", 1536), ("7B", 7)])
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "5", "5 gib", "-1B", "1PB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0B"), (1023, "1023B"), (1536, "1.5KiB"), (3 << 30, "3.0GiB"), (5 << 50, "5120.0TiB")]
)
def test_formatted_sizes(size: int, text: str) -> None:
    assert format_size(size) == text


def test_steps() -> None:
    assert parse_steps("20 steps") == 20
    assert parse_steps("1 step") == 1
    assert format_steps(1) == "1 step"
    assert format_steps(20) == "20 steps"


@pytest.mark.parametrize("text", ["0 steps", "steps", "-1 steps", "1.5 steps", "20"])
def test_what_is_no_count_of_steps(text: str) -> None:
    with pytest.raises(ValueError, match="count of steps"):
        parse_steps(text)
