"""Every format writes every site of ours, and twice the same."""

import pytest

from rackyard.fabric import simulate
from rackyard.fabric.writers.formats import FORMATS, Format, formats


@pytest.mark.parametrize("each", FORMATS, ids=lambda each: each.name)
def test_every_format_writes(each: Format) -> None:
    site = simulate(2, 4, 3)
    text = each.write(site)
    assert text.endswith("\n")
    assert each.write(site) == text
    assert formats()[each.name] is each
