"""Slurm's hostlists: expanded as Slurm does, compressed without loss, bounded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackyard.fabric.readers.hostlist import HostlistError, compress, expand, tokens, writable

NAMES = st.from_regex(r"[a-z.-]{0,3}[0-9]{0,5}", fullmatch=True).filter(bool) | st.text(
    st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=8
).filter(writable)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("peta[10000-10002,10030]", ["peta10000", "peta10001", "peta10002", "peta10030"]),
        ("n[8-10]", ["n8", "n9", "n10"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("a,b[1],c", ["a", "b1", "c"]),
        ("r[1-2]-t[01-02]", ["r1-t01", "r1-t02", "r2-t01", "r2-t02"]),
        ("[1101-1102]", ["1101", "1102"]),
        ("srv[1-2].lab", ["srv1.lab", "srv2.lab"]),
        ("a,,b,", ["a", "b"]),
        ("", []),
    ],
)
def test_expanded_as_slurm_does(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "at", "says"),
    [
        ("n[1-3", 1, "not closed"),
        ("n1]", 2, "without"),
        ("n[1-[2]]", 4, "inside"),
        ("n[1,x]", 4, "neither"),
        ("n[3-1]", 2, "backwards"),
        ("a,n[1-]", 4, "neither"),
        ("n[]", 2, "neither"),
        ("n[0-65536]", 2, "longer"),
        ("a,n[0-999]", 2, "too many"),
        ("n[0-999][0-999]", 0, "too many"),
    ],
)
def test_mistakes_are_shown_where_they_are(text: str, at: int, says: str) -> None:
    with pytest.raises(HostlistError, match=says) as caught:
        expand(text, limit=500)
    assert caught.value.at == at


def test_compressed_as_slurm_writes_it() -> None:
    assert compress(f"n{number}" for number in range(8, 12)) == "n[8-11]"
    assert compress(["t01", "t02", "t03", "t07", "login"]) == "t[01-03,07],login"
    assert compress(["n9", "n10", "n010"]) == "n[9-10,010]"
    assert compress(["n7"]) == "n7"
    assert compress(["r01-t01", "r02-t01"]) == "r01-t01,r02-t01"
    assert compress([]) == ""


@given(st.lists(NAMES, max_size=30))
def test_compress_and_expand_undo_one_another(names: list[str]) -> None:
    text = compress(names)
    assert expand(text) == names
    assert [name for token in tokens(text) for name in expand(token)] == names


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a[1]", "a#", "ä", "a=b", 'a"', "a\\"])
def test_names_that_mean_something_else_are_refused(name: str) -> None:
    assert not writable(name)
    with pytest.raises(ValueError, match=r".*"):
        compress([name])
