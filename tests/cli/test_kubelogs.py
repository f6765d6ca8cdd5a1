"""Which lines of pods' logs are shown."""

import pytest

from rackyard.cli.kubelogs import Wanted, arranged

FAILS = "[rackyard] rank 1 ended with exit code 2; ending the others"
LINES = ["[1] b", "[0] a", "[1] python: can't open file 'x'", "[rackyard] step 3 loss=1", FAILS]


def test_lines_stand_by_rank_and_ours_come_last() -> None:
    assert [*arranged(LINES, Wanted())] == ["[0] a", "[1] b", "[1] python: can't open file 'x'", FAILS]


def test_our_own_lines_are_no_errors(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing looks like an error: the last lines of the rank that failed are the best there is."""
    assert [*arranged(LINES, Wanted(first_error=True))] == ["[1] b", "[1] python: can't open file 'x'"]
    assert capsys.readouterr().err == "no line tells of an error: the last 20 lines of rank 1 instead\n"
    assert [*arranged(LINES, Wanted(rank=1, first_error=True))] == ["[1] b", "[1] python: can't open file 'x'"]
    assert [*arranged(LINES, Wanted(rank=0, first_error=True))] == []
    many = [f"[1] {at}" for at in range(50)]
    assert [*arranged([*many, FAILS], Wanted(first_error=True))] == many[-20:]


@pytest.mark.parametrize("words", ["OSError: no", "python: can't open file 'x': [Errno 2] No such file"])
def test_the_first_error_of_each_rank(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["[0] a", f"[0] {words}", "[0] after", "[1] b", FAILS]
    assert [*arranged(lines, Wanted(first_error=True))] == [f"[0] {words}", "[0] after"]
    assert not capsys.readouterr().err


def test_what_our_lines_say_is_shown_where_no_rank_is_known_to_have_failed() -> None:
    hung = "[rackyard] no step for 60 s: ending all ranks, whose stacks are in their logs"
    assert [*arranged(["[0] a", hung], Wanted(first_error=True))] == [hung]
