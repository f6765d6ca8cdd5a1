"""The page of audit rules is what its generator makes of the rules."""

from pathlib import Path

from rackyard.fabric.expect import ALL_RULES
from rackyard.fabric.expect.rulesdoc import render

PAGE = Path(__file__).resolve().parents[3] / "docs" / "fabric-rules.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run make docs"


def test_every_rule_is_on_it_once() -> None:
    for rule in ALL_RULES:
        assert render().count(f"| `{rule.id}` |") == 1, rule.id
