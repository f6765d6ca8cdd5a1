"""`rackyard config`: the schema and the explanations as a user gets them."""

import json

import pytest
from click.testing import CliRunner

from rackyard.cli.config import config
from rackyard.errors import UsageError


def test_schema_is_json_schema() -> None:
    schema = json.loads(CliRunner().invoke(config, ["schema"]).output)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert {"run", "gpus"} <= set(schema["properties"])


def test_explain_shows_a_section_with_its_keys() -> None:
    out = CliRunner().invoke(config, ["explain", "watch"]).output
    assert "watch.hang\n" in out
    assert "default: `10m`" in out
    assert "segment" not in out


def test_explain_shows_what_an_entry_of_a_list_holds() -> None:
    out = CliRunner().invoke(config, ["explain", "groups"]).output
    assert "type: list of sections; default: `[]`" in out
    assert "groups.within\n" in out


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_explain_for_programs(output: str) -> None:
    result = CliRunner().invoke(config, ["explain", "gpus", "-o", output])
    assert result.exit_code == 0
    assert "required" in result.output


def test_explain_of_an_unknown_key_says_which_was_meant() -> None:
    result = CliRunner().invoke(config, ["explain", "wach.hang"])
    assert isinstance(result.exception, UsageError)
    assert "did you mean watch.hang?" in str(result.exception)
