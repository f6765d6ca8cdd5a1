"""The shape3d commands, called as a user would."""

import json
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from rackyard.cli.shape3d import shape3d


def test_the_command_module_does_not_import_torch() -> None:
    code = "import sys, rackyard.cli.shape3d; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_meshes_then_sample(tmp_path: Path) -> None:
    runner = CliRunner()
    made = runner.invoke(shape3d, ["meshes", str(tmp_path / "m"), "--count", "2"], catch_exceptions=False)
    assert made.exit_code == 0
    assert "2 mesh files" in made.output
    flags = ["--data", str(tmp_path / "m"), "--out", str(tmp_path / "out"), "--count", "2", "--steps", "4"]
    done = runner.invoke(shape3d, ["sample", *flags, "--resolution", "32", "-o", "json"], catch_exceptions=False)
    assert done.exit_code == 0
    found = json.loads(done.output)
    assert len(found["shapes"]) == 2
    assert Path(found["png"]).is_file()


def test_train_runs_in_process(tmp_path: Path, sample_meshes: Path) -> None:
    flags = ["--config", "micro", "--data", str(sample_meshes), "--steps", "2", "--checkpoint", str(tmp_path)]
    done = CliRunner().invoke(shape3d, ["train", *flags], catch_exceptions=False)
    assert done.exit_code == 0
    assert "final loss=" in done.output


def test_bench_prints_what_was_measured_and_where() -> None:
    done = CliRunner().invoke(shape3d, ["bench", "--resolution", "16", "--steps", "2", "--repeats", "1"])
    assert done.exit_code == 0
    assert "SECONDS (MEASURED)" in done.output
    assert "fp32" in done.output
