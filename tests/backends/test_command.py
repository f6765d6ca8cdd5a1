"""Which commands are forked, and which are left to the shell."""

import sys
from pathlib import Path

import pytest

from rackyard.backends.local.command import parse

HERE = str(Path(sys.executable).parent)


@pytest.mark.parametrize(
    ("run", "kind", "target", "args"),
    [
        ("python train.py", "script", "train.py", ()),
        ("python3 -u train.py --x 'a b' \"c;d\"", "script", "train.py", ("--x", "a b", "c;d")),
        (f"{sys.executable} -m pack.mod -v\n", "module", "pack.mod", ("-v",)),
        ("  python missing.py", "script", "missing.py", ()),
        ("python -c 'print(1); x'", "argv", "", ()),
        ("python -O train.py", "argv", "", ()),
        ("python", "argv", "", ()),
        ("python folder", "argv", "", ()),
        ("python app.pyz", "argv", "", ()),
        ("/usr/bin/env python train.py", "argv", "", ()),
        ("torchrun --x train.py", "argv", "", ()),
        ("python train.py $RANK", "shell", "", ()),
        ('python train.py "$RANK"', "shell", "", ()),
        ("python train.py '$RANK'", "script", "train.py", ("$RANK",)),
        ("A=1 python train.py", "shell", "", ()),
        ("python a.py && python b.py", "shell", "", ()),
        ("python a.py\npython b.py", "shell", "", ()),
        ("python a.py > out", "shell", "", ()),
        ("python a.py *.txt", "shell", "", ()),
        ("python a.py ~/x", "shell", "", ()),
        ("python 'a.py", "shell", "", ()),
        ("", "shell", "", ()),
    ],
)
def test_a_command_is_read_as_meant(tmp_path: Path, run: str, kind: str, target: str, args: tuple[str, ...]) -> None:
    (tmp_path / "folder").mkdir()
    command = parse(run, cwd=str(tmp_path), path=HERE)
    assert (command.kind, command.target, command.args) == (kind, target, args)
    assert kind != "shell" or command.argv == ("/bin/sh", "-c", run.strip())


def test_another_environments_python_is_not_ours(tmp_path: Path) -> None:
    # The `python` of a virtual environment is a link to the same file; only its folder tells.
    (tmp_path / "python").symlink_to(sys.executable)
    assert parse("python train.py", cwd="/", path=str(tmp_path)).kind == "argv"
    assert parse("python train.py", cwd="/", path="").kind == "argv"
