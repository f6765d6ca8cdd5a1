"""The job spec's documentation, made from the models: reference page, JSON Schema, `rackyard config explain`.

`python -m rackyard.jobs.specdoc > docs/job-spec.md` writes the page; a test compares it with the file.
"""

import json
import sys
import textwrap
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rackyard.jobs.spec import JobSpec
from rackyard.jobs.specchecks import RESERVED_ENV
from rackyard.jobs.specerrors import section_at

EXAMPLE = """\
name: shape-dit
run: python -m rackyard.shape3d.train --config tiny
gpus: 16
segment: {gpus: 8, required: true}     # stays inside one NVLink domain
spread: pack                           # pack | spread | isolate | {racks: 2}
rails: aligned                         # aligned | any | a rail number
parallel: {framework: fsdp, tp: 1, pp: 1}
checkpoint: {dir: ./ckpt, every: 20 steps, replicas: 1}
recover: {attempts: 5, spares: 1, mode: act}
watch: {hang: 60s, slow: {ratio: 1.2, steps: 20}}
warm: [torch]                          # imports done before the ranks are forked
queue: prod
priority: 0
"""

_INTRO = """\
# Job spec

<!-- Made by `python -m rackyard.jobs.specdoc`. Don't edit: `make docs` writes it, a test compares it. -->

A job is one YAML file. Only `run` and `gpus` are required. Unknown keys, wrong types and values, keys given twice
and rules broken between keys are errors that name the line and column and say what to write instead. Anchors,
aliases, tags and directives are not supported, and a file is at most 1 MiB.

```yaml
"""

_OUTRO = """\
## Rules between keys

- `segment.gpus` divides `gpus`.
- `parallel`: tp * pp * cp divides `gpus`, and ep divides gpus / pp.
- `groups`: each `gpus` divides the job's and is a multiple of `segment.gpus`; each of leaf, block and part is given
  once at most, and a wider one has more GPUs.
- `spread: {racks: K}`: K is at most the number of segments, or of GPUs where there is no `segment`. `spread: isolate`
  needs `checkpoint.replicas` of 1 or more, and 1 + replicas is at most that number too.
- `apart` does not name the job itself. No node is in `nodes.pin` and `nodes.exclude`, and no more nodes are pinned than
  the job has GPUs.
- `env` can't set what Rackyard sets for every rank, that is names that begin with `RACKYARD_` or `TORCHELASTIC_`, and
{reserved}.

## What takes effect today

`watch.slow` is checked and kept with the job, and nothing acts on it yet. Waiting jobs go by `priority`, then by age;
room is reserved for those at the front, and a job behind them starts only where it delays none of them, by its
`estimate` ([queue](queue.md)). No running job is stopped for another, and a `queue` is a name without a quota. The keys
of `checkpoint` are handed to the command as `RACKYARD_CHECKPOINT_DIR`, `RACKYARD_CHECKPOINT_EVERY` and so on: the
command writes the checkpoints, Rackyard finds and verifies them in `dir`. `parallel` is weighed by placement; the
command's own arguments say how it really cuts the model.

## Durations

Durations are a number and a unit: `500ms`, `60s`, `10m`, `1.5h`, `2d`.

`rackyard config schema` prints the JSON Schema of the file for editors; `rackyard config explain KEY` prints a line
of this page.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One key of the file as documented."""

    key: str
    type: str
    default: str
    meaning: str


def rows() -> list[Row]:
    """All keys in file order, sections before what is in them."""
    return list(_rows(JobSpec, ""))


def file_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of the job file. `name` is optional there: the file's name stands in."""
    schema = JobSpec.model_json_schema()
    schema["required"] = [key for key in schema["required"] if key != "name"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Rackyard job file"}


def render() -> str:
    """The reference page in Markdown."""
    table = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for row in rows():
        cells = (f"`{row.key}`", row.type, row.default, row.meaning)
        table.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    names = ", ".join(f"`{name}`" for name in sorted(RESERVED_ENV))
    lines = textwrap.fill(names, 118, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    outro = _OUTRO.replace("{reserved}", lines)
    return f"{_INTRO}{EXAMPLE}```\n\n## Keys\n\n" + "\n".join(table) + f"\n\n{outro}"


def _rows(model: type[BaseModel], prefix: str) -> list[Row]:
    schema = model.model_json_schema()
    found: list[Row] = []
    for name, field in model.model_fields.items():
        inner = section_at(model, (name,))
        about = schema["properties"][name]
        kind = _type(about) if inner is None else "list of sections" if about.get("type") == "array" else "section"
        default = "the file's name" if prefix + name == "name" else _default(field, about, kind == "section")
        found.append(Row(prefix + name, kind, default, " ".join((field.description or "").split())))
        if inner:
            found += _rows(inner, f"{prefix}{name}.")
    return found


def _default(field: FieldInfo, schema: dict[str, Any], section: bool) -> str:
    if field.is_required():
        return "required"
    value = schema.get("default", {})
    if value is None:
        return "absent"
    if section:
        return "as below"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"


def _type(schema: dict[str, Any]) -> str:
    options = [part for part in schema.get("anyOf", []) if part.get("type") != "null"]
    if len(options) == 1:
        return _type({**options[0]})
    # pydantic titles every property after its key; the titles set in spectypes say more than the bare type.
    title = schema.get("title", "")
    if title[:1].islower() or title == "DNS label":
        return str(title)
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}s"
    if schema.get("type") == "object":
        return "text by name"
    return _number(schema) if schema.get("type") in ("integer", "number") else _NAMES[schema["type"]]


_NAMES = {"integer": "whole number", "number": "number", "boolean": "true or false", "string": "text"}


def _number(schema: dict[str, Any]) -> str:
    name = _NAMES[schema["type"]]
    if "exclusiveMinimum" in schema:
        return f"{name} above {schema['exclusiveMinimum']:g}, to {schema['maximum']:g}"
    return f"{name}, {schema['minimum']} to {schema['maximum']:,}"


if __name__ == "__main__":
    sys.stdout.write(render())
