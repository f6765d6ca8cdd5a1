"""This host: the collecting script run here, or sysfs and NVML read in place without any tool."""

import platform
import subprocess
import sys
from importlib.resources import as_file, files
from pathlib import Path

from rackyard.collect.nvml import NAME as NVML
from rackyard.collect.nvml import read_nvml
from rackyard.collect.walk import walk
from rackyard.errors import RackyardError, UsageError
from rackyard.fabric.facts import Facts, HostFact, Source
from rackyard.fabric.readers.sysfs_tree import facts_of
from rackyard.findings import Evidence, Finding, Severity, Verdict

_SECONDS = 600
"""How long the script may take. Each of its commands is stopped after 60 s, and there are seven."""


def script() -> str:
    """The text of collect.sh, to be copied to nodes that have no Rackyard."""
    return files("rackyard.collect").joinpath("collect.sh").read_text("utf-8")


def run_script(folder: Path, *, full: bool = False) -> tuple[Path, str]:
    """Run collect.sh here: the tarball it wrote into `folder`, and its lines. RackyardError when it fails."""
    with as_file(files("rackyard.collect").joinpath("collect.sh")) as path:
        command = ["/bin/sh", str(path), *(["--full"] if full else []), str(folder)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise RackyardError(
                f"collecting took more than {_SECONDS} s",
                fix="run nvidia-smi by hand: a driver that hangs needs a reboot",
            ) from None
        except OSError as error:
            raise UsageError("/bin/sh can't be run", why=str(error)) from None
    if done.returncode:
        raise RackyardError(
            f"nothing was collected into {folder}", why=done.stderr.strip() or f"exit {done.returncode}"
        )
    said, _, out = done.stdout.rstrip("\n").rpartition("\n")
    return Path(out), said


def look(*, sys_root: Path = Path("/sys"), proc_root: Path = Path("/proc")) -> Facts:
    """What this host says, without nvidia-smi: sysfs always, NVML where nvidia-ml-py and a driver are there."""
    node = platform.node()
    tree = walk(sys_root, proc=proc_root)
    facts = facts_of(node, tree.files, tree.links, origin=str(sys_root))
    facts.hosts.append(HostFact(node=node, source=Source("uname"), kernel=platform.release()))
    if sys.platform == "linux" and Path(proc_root, "driver", "nvidia").is_dir():
        try:
            facts.add(read_nvml(node))
        except UsageError as error:
            facts.findings.append(_unasked(node, error))
    return facts


def _unasked(node: str, error: UsageError) -> Finding:
    return Finding(
        "fabric/nvml-unasked",
        Verdict.UNKNOWN,
        Severity.WARNING,
        node,
        "this host has NVIDIA GPUs, but NVML could not be asked about them",
        (Evidence(NVML, error.why or error.what),),
        error.fix or "",
    )
