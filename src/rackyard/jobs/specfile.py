"""Reading a job spec from a YAML file. Every error carries the line and column it is about."""

import re
from pathlib import Path

from pydantic import ValidationError

from rackyard.errors import SpecError, Where
from rackyard.jobs.spec import JobSpec
from rackyard.jobs.specchecks import Path as KeyPath
from rackyard.jobs.specchecks import Problem
from rackyard.jobs.specerrors import joined, spec_error
from rackyard.jobs.yamltree import Tree, read_tree

MAX_BYTES = 1 << 20


def load_spec(path: str | Path) -> JobSpec:
    """Read a job file; where it gives no name, the job is named after the file.

    Raises:
        SpecError: the file can't be read, is larger than 1 MiB or not UTF-8 text, is not YAML, or says something
            that a job spec can't.
    """
    return parse_spec(_text(path), str(path))


def place(path: str | Path, key: KeyPath) -> Where:
    """Where a job file that was read before says this, or the nearest part of it that it says. SpecError where it can't
    be read any more.
    """
    return read_tree(_text(path).removeprefix("\ufeff"), str(path)).where(key)


def _text(path: str | Path) -> str:
    file = str(path)
    try:
        with open(path, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise SpecError(f"no file {file}", where=Where(file), fix="check the path of the job file") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise SpecError(f"can't read {file}", where=Where(file), why=why) from None
    if len(data) > MAX_BYTES:
        raise SpecError("larger than 1 MiB: not a job file", where=Where(file))
    return _decode(data, file)


def parse_spec(text: str, file: str = "job.yaml") -> JobSpec:
    """Read a job spec from YAML text; `file` names it in errors and, where the text does not, the job.

    Raises:
        SpecError: as `load_spec`.
    """
    if len(text) > MAX_BYTES:
        raise SpecError("larger than 1 MiB: not a job file", where=Where(file))
    if (index := text.find("\0")) >= 0:
        line = text.count("\n", 0, index) + 1
        raise SpecError("binary data: not a job file", where=Where(file, line), why="it holds a NUL character")
    tree = read_tree(text.removeprefix("\ufeff"), file)
    if tree.value is None:
        raise SpecError("empty: a job file needs at least run and gpus", where=Where(file, 1, 1))
    if not isinstance(tree.value, dict):
        where = tree.where(())
        raise SpecError("a job file is a mapping of keys to values", where=where, fix="write, for example, gpus: 8")
    return _validated(tree)


def default_name(file: str) -> str:
    """The job name a file gives: its stem, made a DNS label."""
    stem = re.sub(r"\.(ya?ml|json)$", "", Path(file).name, flags=re.IGNORECASE)
    label = re.sub(r"[^a-z0-9]+", "-", stem.lower())[:63].strip("-")
    return label or "job"


def _validated(tree: Tree) -> JobSpec:
    values = {"name": default_name(tree.file), **tree.value}
    env = values.get("env")
    problems = []
    if isinstance(env, dict):
        # Environment values are text: what was written counts, not the number that YAML sees in it.
        values["env"] = {key: tree.raw.get(("env", key), value) for key, value in env.items()}
        empty = [key for key, value in env.items() if value is None]
        problems = [Problem(("env", key), "has no value", "write '' for an empty one") for key in empty]
    if problems:
        raise joined([(problem, tree.where(problem.path, key=True)) for problem in problems])
    try:
        return JobSpec.model_validate(values)
    except ValidationError as error:
        raise spec_error(error, JobSpec, tree.file, tree.where) from None


def _decode(data: bytes, file: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - (before.rfind(b"\n") + 1) + 1
        why = f"the byte 0x{data[error.start]:02x} is not part of UTF-8 text"
        raise SpecError("not UTF-8 text", where=Where(file, line, column), why=why, fix="save it as UTF-8") from None
