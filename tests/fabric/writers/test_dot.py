"""Graphviz output: every part is there once, and every text is one token whatever is in it."""

import re
import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackyard.fabric import simulate
from rackyard.fabric.model import Site
from rackyard.fabric.writers.dot import write

LINE = re.compile(
    r"""\s*(\}|graph\ (T\ \{|\[[\w=,.\ T-]*\];)|node\ \[[\w=,.\ T-]*\];|subgraph\ cluster_\d+\ \{
    |T(\ --\ T)?(\ \[[\w=,\ T-]*\])?;)""",
    re.VERBOSE,
)
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')


@settings(max_examples=60)
@given(data=st.data())
def test_every_line_is_a_statement(
    faulty: st.SearchStrategy[Site], odd: st.SearchStrategy[Site], data: st.DataObject
) -> None:
    site = data.draw(faulty | odd)
    text = write(site)
    for line in QUOTED.sub("T", text).splitlines():
        assert LINE.fullmatch(line), line
    ids = re.findall(r'^ *("(?:[^"\\]|\\.)*") \[label', text, re.MULTILINE)
    assert len(ids) == len(set(ids))
    ends = {
        end
        for a, b in re.findall(r'^ *("(?:[^"\\]|\\.)*") -- ("(?:[^"\\]|\\.)*")', text, re.MULTILINE)
        for end in (a, b)
    }
    assert ends <= set(ids)


def test_cables_of_a_rack() -> None:
    text = write(simulate(1, 2))
    assert text.count('" -- "leaf ') == 8
    assert text.count('" -- "spine ') == 36
    assert '"node r01-t01" -- "leaf leaf-3-r01" [label="3"];' in text


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_takes_it() -> None:
    dot = shutil.which("dot")
    assert dot is not None
    done = subprocess.run([dot, "-Tsvg"], input=write(simulate(1, 3, 2)).encode(), capture_output=True, check=True)
    assert b"<svg" in done.stdout
