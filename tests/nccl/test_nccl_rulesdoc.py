"""The page of lint rules is what its generator makes of the rules, and names every rule that a finding may carry."""

from pathlib import Path

import pytest

from rackyard.nccl import Version, lint
from rackyard.nccl.rulesdoc import render

PAGE = Path(__file__).resolve().parents[2] / "docs" / "nccl-rules.md"
GOOD = b'<system version="1"><cpu numaid="0"></cpu></system>'


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run make docs"


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + GOOD,
        b"<?xml version='1.0'?>" + GOOD,
        b"<!DOCTYPE system>" + GOOD,
        b"<![CDATA[x]]>" + GOOD,
        b"\t" + GOOD,
        GOOD.replace(b" numaid", b"\nnumaid"),
        GOOD.replace(b"</cpu>", b"</gpu>"),
        GOOD[:-9],
        GOOD[:20],
        b"<!-- a" + GOOD,
        GOOD.replace(b'"0"', b"0"),
        GOOD.replace(b'"1"', b'"2"'),
        GOOD.replace(b"</cpu>", b"text</cpu>"),
        GOOD.replace(b"numaid", b"n" * 300),
        b"<system version='1'>" + b"<cpu numaid='0'/>" * 300 + b"</system>",
        b"",
        b"hello",
        b"<graphs version='1'></graphs>",
        GOOD + GOOD,
        GOOD.replace(b"<cpu", b"<gpu/><blob/><cpu"),
        GOOD.replace(b"numaid", b"numaid='1' word numaid"),
        GOOD.replace(b"numaid", b"name='a&amp;b' numaid"),
        GOOD.replace(b"numaid", b" ".join(b"a%d='1'" % number for number in range(20)) + b" numaid"),
        GOOD.replace(b'"0"', b'"0\0"'),
    ],
)
def test_every_rule_that_a_finding_carries_is_on_it(data: bytes) -> None:
    for version in ("2.18.1", "2.29.7", "2.30.7", "2.32.0"):
        for finding in lint(data, "t.xml", Version.parse(version)):
            named = f"`{finding.rule}` |" in render() or f"`{finding.rule.removeprefix('nccl-xml/')}`" in render()
            assert named, finding
