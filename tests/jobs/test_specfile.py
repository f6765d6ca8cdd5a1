"""The spec as a file: whatever is in it, the answer is a spec or a `SpecError` that says where."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rackyard.errors import SpecError, Where
from rackyard.jobs.spec import JobSpec
from rackyard.jobs.specdoc import EXAMPLE, file_schema, render, rows
from rackyard.jobs.specfile import MAX_BYTES, default_name, load_spec, parse_spec

LEAST = "run: python t.py\ngpus: 8\n"


def refused(text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    return caught.value


def place(error: SpecError) -> tuple[int | None, int | None]:
    assert isinstance(error.where, Where)
    return error.where.line, error.where.column


def test_the_example_of_the_docs_is_a_spec() -> None:
    spec = parse_spec(EXAMPLE)
    assert spec.name == "shape-dit"
    assert str(spec.checkpoint and spec.checkpoint.every) == "20 steps"
    assert spec.watch.hang == 60
    assert JobSpec.from_dict(spec.to_dict()) == spec


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/a/My Job_3.yaml", "my-job-3"),
        ("train.v2.YML", "train-v2"),
        ("-", "job"),
        ("<stdin>", "stdin"),
        ("训练.yaml", "job"),
        ("a" * 99, "a" * 63),
    ],
)
def test_the_file_names_the_job(file: str, name: str) -> None:
    assert default_name(file) == name
    assert parse_spec(LEAST, file).name == name


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("run: a\ngpu_count: 8\ngpus: 8", 2, 1, "unknown key"),
        ("run: a\ngpus: x", 2, 7, "must be a whole number, not 'x'"),
        ("run: a\ngpus: 8\nwatch:\n  slow:\n    ratoi: 2", 5, 5, "did you mean ratio?"),
        ("run: a\ngpus: 8\nrun: b", 3, 1, "given twice"),
        ("run: a\ngpus: 8\nwatch: {hang: 1m, hang: 2m}", 3, 19, "given twice"),
        ("gpus: 8", 1, 1, "run: missing"),
        ("run: a\ngpus: 8\nsegment: {required: true}", 3, 10, "segment.gpus: missing"),
        ("run: a\ngpus: 8\nsegment: {gpus: 3}", 3, 17, "use one of 1, 2, 4, 8"),
        ("run: a\ngpus: 8\nspread: {racks: 9}", 3, 17, "more than the job has"),
        ("run: a\ngpus: 8\nenv: {A: }", 3, 7, "has no value"),
        ("run: a\ngpus: 8\nwatch: {hang: 60}", 3, 15, "must be a duration with its unit"),
        ("run: a\ngpus: 8\ngroups:\n- {gpus: 4, within: leaf}\n- {gpus: 3, within: part}", 5, 10, "must divide"),
        ("run: a\ngpus: 8\ngroups: [{gpus: 4, within: leaf, requird: true}]", 3, 34, "did you mean required?"),
        ("run: a\ngpus: 8\nspread: isolate", 3, 9, "set checkpoint.replicas"),
        ("run: a\ngpus: 8\nnodes: {pin: [t1, 7]}", 3, 19, "write the value in quotes"),
        ("run: a\ngpus: 8\nnodes: {pin: [t1], exclude: [t1]}", 3, 15, "is excluded as well"),
        ("run: a\nname: b\ngpus: 8\napart: [a, b]", 4, 12, "is this job itself"),
        ("run: a\ngpus: 8\nestimate: 60", 3, 11, "must be a duration with its unit"),
        ("run: 'a", 1, 8, "not valid YAML"),
        ("run: [", 1, 7, "not valid YAML"),
        ("run: a\n\x07", 2, 1, "U+0007"),
        ("run: a\0", 1, None, "binary"),
        ("", 1, 1, "empty"),
        ("# only a comment\n", 1, 1, "empty"),
        ("- a", 1, 1, "mapping"),
        ("run: &a x\ngpus: *a", 1, 6, "anchors"),
        ("run: !!python/object:os.system x", 1, 6, "tags"),
        ("? [a]\n: b", 1, 3, "plain text"),
        ("%YAML 1.1\n---\nrun: a", 2, 1, "directives"),
        ("run: a\n---\nrun: b", 2, 1, "more than one"),
        ("gpus: 1" + "0" * 5000, 1, 7, "digits"),
        ("<<: {run: a}\ngpus: 8", 1, 1, "unknown key"),
    ],
)
def test_errors_say_where(text: str, line: int, column: int | None, says: str) -> None:
    error = refused(text)
    assert says in str(error)
    assert place(error) == (line, column)


def test_problems_come_in_the_order_of_the_file() -> None:
    error = refused("gpus: 0\nqueue: A\nrnu: x\nrun: x\n")
    assert place(error) == (1, 7)
    assert error.why is not None
    assert error.why.index("line 2: queue") < error.why.index("line 3: rnu")


def test_a_command_may_be_shell_text() -> None:
    script = "run: |\n  # don't stop\n  python t.py | tee out\ngpus: 8"
    assert parse_spec(script).run == "# don't stop\npython t.py | tee out\n"


def test_environment_values_are_text_as_written() -> None:
    spec = parse_spec(LEAST + "env: {A: 010, B: yes, C: true, D: 1e3, E: '', F: \"x\"}")
    assert spec.env == {"A": "010", "B": "yes", "C": "true", "D": "1e3", "E": "", "F": "x"}


def test_yaml_is_1_2() -> None:
    assert parse_spec("run: yes\ngpus: 010").run == "yes"
    assert parse_spec("run: yes\ngpus: 010").gpus == 10
    assert parse_spec("\ufeffrun: a\ngpus: 0x10").gpus == 16


def test_a_deep_or_endless_file_is_refused_early() -> None:
    assert "deep" in str(refused("a: " + "[" * 500_000))
    assert "deep" in str(refused("- " * 400_000))
    assert "values" in str(refused("env: {a: [" + "x," * 400_000 + "]}"))


def test_nothing_expands() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    assert "anchors" in str(refused(bomb))
    assert "anchors" in str(refused("a: &a [*a]"))


def test_files(tmp_path: Path) -> None:
    good = tmp_path / "my-job.yaml"
    good.write_text(LEAST)
    assert load_spec(good).name == "my-job"

    def refusal(path: Path) -> str:
        with pytest.raises(SpecError) as caught:
            load_spec(path)
        return str(caught.value)

    assert "no file" in refusal(tmp_path / "absent.yaml")
    assert "can't read" in refusal(tmp_path)
    assert "can't read" in refusal(Path("a\0b"))
    (tmp_path / "latin.yaml").write_bytes(b"run: a\ngpus: \xe9")
    assert "latin.yaml:2:7" in refusal(tmp_path / "latin.yaml")
    (tmp_path / "big.yaml").write_bytes(b"#" * (MAX_BYTES + 1))
    assert "1 MiB" in refusal(tmp_path / "big.yaml")
    (tmp_path / "bin.yaml").write_bytes(b"\x7fELF\0\0")
    assert "binary" in refusal(tmp_path / "bin.yaml")


yaml_like = st.text(alphabet="abgnprsu: \n-[]{},'\"#&*!|>%@`?~0198.\t\\x_é\ud83d\u2028", max_size=120)
keys = st.sampled_from([row.key.split(".")[0] for row in rows()])
pieces = st.tuples(keys, st.sampled_from([": ", ":\n  ", ":"]), yaml_like).map("".join)


@given(st.one_of(st.text(), yaml_like, st.lists(pieces, max_size=6).map("\n".join)))
@example('run: "\\U99999999"')
@example('"\\ud800": 1')
@example('run: "\\ud800"\ngpus: 1')
@example(LEAST + 'env: {"\\ud800": "\\ud800"}')
@example(LEAST + 'checkpoint: {dir: "\\ud800"}')
@example("run: a\ngpus: .nan")
@example("run: {racks: {}}\nspread: []\nwarm: {}\nenv: []")
def test_any_text_is_a_spec_or_a_spec_error(text: str) -> None:
    try:
        spec = parse_spec(text)
    except SpecError as error:
        assert str(error)
        str(error).encode()
    else:
        assert JobSpec.from_dict(spec.to_dict()) == spec


@given(st.binary(max_size=200))
def test_any_bytes_are_a_spec_or_a_spec_error(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(data)
    try:
        load_spec(path)
    except SpecError as error:
        assert str(error)


def test_the_reference_page_is_current() -> None:
    page = Path(__file__).parents[2] / "docs" / "job-spec.md"
    assert page.read_text(encoding="utf-8") == render(), "run `make docs`"


def test_every_key_is_documented() -> None:
    assert [row.key for row in rows() if not row.meaning] == []


def test_the_schema_asks_for_run_and_gpus() -> None:
    schema = file_schema()
    assert schema["required"] == ["run", "gpus"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["groups"]["items"] == {"$ref": "#/$defs/RankGroup"}
    assert schema["$defs"]["RankGroup"]["required"] == ["gpus", "within"]
    assert schema["$defs"]["Watch"]["properties"]["hang"]["default"] == "10m"
    assert schema["$defs"]["Checkpoint"]["properties"]["every"]["default"] == "auto"
