"""The page of label keys is what its generator makes of the table in use."""

from pathlib import Path

from rackyard.fabric.keysdoc import render
from rackyard.fabric.labelkeys import shipped

PAGE = Path(__file__).resolve().parents[2] / "docs" / "label-keys.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run make docs"


def test_every_key_is_on_it_once() -> None:
    rows = [line.split("|")[1].strip() for line in render().splitlines() if line.startswith("| `")]
    assert sorted(rows) == sorted(f"`{key.shown}`" for key in shipped().keys)
