"""The readers in their processes, the loop, the metrics and their listener, and the command."""

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, generate_latest
from tests.agent.hosts import NODE, captured, driver, failed, readings, tree

from rackyard.agent import readers as readers_module
from rackyard.agent.derive import derive
from rackyard.agent.host import Memory
from rackyard.agent.listener import Address, Listener, address
from rackyard.agent.loop import Agent
from rackyard.agent.metrics import Metrics
from rackyard.agent.readers import Readers
from rackyard.agent.reading import Reading, Trouble
from rackyard.agent.writing import Writer, Wrote
from rackyard.cli.kube import kube
from rackyard.errors import ConflictError, RackyardError, UsageError
from testbed.api import until

LONG = 120.0


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recorded tray, and a driver for it."""
    monkeypatch.setenv("PYTHONPATH", driver(tmp_path / "driver"))
    return tree(tmp_path / "root")


def round_of(root: Path, timeout: float = LONG) -> dict[str, Reading]:
    readers = Readers(NODE, root, timeout)
    try:
        return {one.reader: one for one in readers.read()}
    finally:
        readers.close()


# --- readers ----------------------------------------------------------------------------------------------------------


def test_a_whole_round(host: Path) -> None:
    found = round_of(host)
    sysfs, nvml = found["sysfs"].facts, found["nvml"].facts
    assert sysfs is not None and nvml is not None
    assert len(list(sysfs.devices())) == 8 and len(sysfs.nics) == 4
    assert [(gpu.links, gpu.health_mask) for gpu in nvml.gpus] == [(18, 0x1AA)] * 4
    assert sysfs.hosts[0].kernel == "6.8.0-64k"
    view, _ = derive(NODE, tuple(found.values()), Memory(), 0.0)
    assert {one.status for one in view.conditions} == {"False"}


def test_the_evidence_is_the_drivers(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVML_DOWN", "2")
    view, _ = derive(NODE, tuple(round_of(host).values()), Memory(), 0.0)
    assert view.conditions[0].message == "GPU 1 (0009:06:00.0): 16 of 18 NVLinks up [nvml]"


def test_a_gpu_that_is_lost(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVML_DEAD", "2")
    view, _ = derive(NODE, tuple(round_of(host).values()), Memory(), 0.0)
    gpu = next(one for one in view.conditions if one.type == "rackyard.io/GPUFault")
    assert (gpu.status, gpu.reason, gpu.message) == ("True", "GPUSilent", "GPU 2 does not answer: GPU is lost [nvml]")


@pytest.mark.parametrize(
    ("variable", "value", "trouble", "line"),
    [
        ("NVML_CRASH", "1", Trouble.FAILED, "was ended by signal 11"),
        ("NVML_REFUSE", "Driver Not Loaded", Trouble.SILENT, "does not answer: Driver Not Loaded"),
        ("NVML_REFUSE", "NVML Shared Library Not Found", Trouble.SILENT, "Shared Library Not Found"),
    ],
)
def test_a_driver_in_trouble(
    host: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, trouble: Trouble, line: str
) -> None:
    monkeypatch.setenv(variable, value)
    found = round_of(host)
    assert (found["nvml"].facts, found["nvml"].trouble) == (None, trouble)
    assert line in found["nvml"].line
    assert found["sysfs"].facts is not None


def test_a_driver_that_hangs_is_given_up(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVML_HANG", "1")
    found = round_of(host, 8.0)
    assert (found["nvml"].trouble, found["nvml"].line) == (
        Trouble.TIMEOUT,
        "the nvml reader did not answer within 8 s",
    )


class Immortal:
    """A process in the kernel's hands: it does not end."""

    def __init__(self, _words: object) -> None:
        self.dead = False

    def ask(self, timeout: float) -> bytes:
        raise TimeoutError

    def end(self) -> bool:
        return False

    def gone(self) -> bool:
        return self.dead


def test_a_reader_that_can_not_be_ended_is_not_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Immortal] = []

    def start(words: object) -> Immortal:
        started.append(Immortal(words))
        return started[-1]

    monkeypatch.setattr(readers_module, "Child", start)
    found = Readers(NODE, tmp_path, names=("nvml",))
    assert [found.read()[0].trouble for _ in range(3)] == [Trouble.TIMEOUT, Trouble.HANGING, Trouble.HANGING]
    assert len(started) == 1
    started[0].dead = True  # the kernel let it go
    assert found.read()[0].trouble is Trouble.TIMEOUT
    assert len(started) == 2


def test_a_process_stays_and_after_trouble_it_is_another(host: Path) -> None:
    readers = Readers(NODE, host, LONG)

    def pids() -> dict[str, int]:
        return {name: child._process.pid for name, child in readers._children.items()}

    readers.read()
    first = pids()
    assert [one.trouble for one in readers.read()] == [None, None]
    assert pids() == first
    os.kill(first["nvml"], signal.SIGKILL)
    assert [one.trouble for one in readers.read()] == [None, Trouble.FAILED]
    assert [one.trouble for one in readers.read()] == [None, None]
    assert pids()["nvml"] != first["nvml"] and pids()["sysfs"] == first["sysfs"]
    readers.close()


def test_a_root_without_a_host(tmp_path: Path) -> None:
    found = round_of(tmp_path)
    assert (found["sysfs"].trouble, found["nvml"].trouble) == (Trouble.FAILED, Trouble.NO_DRIVER)
    assert "there is no folder" in found["sysfs"].line


def test_a_reader_that_says_nonsense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\nread line\necho nonsense\n")
    script.chmod(0o755)
    monkeypatch.setattr(readers_module.sys, "executable", str(script))
    assert "can't be read" in round_of(tmp_path)["nvml"].line
    monkeypatch.setattr(readers_module.sys, "executable", str(tmp_path / "absent"))
    assert "can't be started" in round_of(tmp_path)["nvml"].line


# --- metrics ----------------------------------------------------------------------------------------------------------


def shown(*given: Reading) -> str:
    metrics = Metrics()
    view, _ = derive(NODE, given, Memory(), 0.0)
    metrics.show(view)
    metrics.wrote("labels", failed=True)
    return generate_latest(metrics.registry).decode()


def test_what_is_measured() -> None:
    text = shown(*readings(captured()))
    for line in (
        'rackyard_node_condition{condition="rackyard.io/NVLinkDown",status="False"} 1.0',
        'rackyard_node_condition{condition="rackyard.io/NVLinkDown",status="True"} 0.0',
        'rackyard_node_gpus{health="healthy"} 4.0',
        'rackyard_node_nics{health="healthy"} 4.0',
        'rackyard_node_nvlinks{state="up"} 72.0',
        'rackyard_agent_reader_up{reader="nvml"} 1.0',
        'rackyard_agent_reader_duration_seconds_count{reader="sysfs"} 1.0',
        'rackyard_node_findings{rule="node/nvlinks",severity="info",verdict="PASS"} 1.0',
        'rackyard_node_findings{rule="fabric/gpu-links",severity="info",verdict="PASS"} 1.0',
        'rackyard_agent_writes_total{result="failed",what="labels"} 1.0',
    ):
        assert line in text
    assert "rackyard_agent_last_round_timestamp_seconds" in text


def test_a_reader_in_trouble_is_counted_and_its_gauges_are_gone() -> None:
    text = shown(readings(captured())[0], failed("nvml"))
    assert 'rackyard_agent_reader_up{reader="nvml"} 0.0' in text
    assert 'rackyard_agent_reader_troubles_total{reader="nvml",reason="ReaderTimedOut"} 1.0' in text
    assert 'rackyard_node_condition{condition="rackyard.io/GPUFault",status="Unknown"} 1.0' in text
    assert "rackyard_node_gpus{" not in text


def test_before_the_first_round_there_is_nothing_of_the_node() -> None:
    assert "rackyard_node_condition{" not in generate_latest(Metrics().registry).decode()


# --- listener ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("made-up-token\n")
    return file


def test_addresses(token: Path) -> None:
    assert address("9402", None) == Address("127.0.0.1", 9402)
    assert address("localhost:0", None) == Address("localhost", 0)
    assert str(address("[::1]:9402", None)) == "[::1]:9402"
    assert address("0.0.0.0:9402", token) == Address("0.0.0.0", 9402, token)


@pytest.mark.parametrize("text", ["", "x", "1.2.3:9", "127.0.0.1:70000", "host:9402", "127.0.0.1:-1"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="no address"):
        address(text, None)


@pytest.mark.parametrize("text", ["0.0.0.0:9402", "[::]:9402", "10.0.0.1:9402"])
def test_others_are_told_only_with_a_token(text: str, token: Path) -> None:
    with pytest.raises(UsageError, match="metrics-token-file"):
        address(text, None)
    token.write_text(" \n")
    with pytest.raises(UsageError, match="token file"):
        address(text, token)
    with pytest.raises(UsageError, match="token file"):
        address(text, token.with_name("absent"))


Ask = Callable[..., tuple[int, str]]


@pytest.fixture
def served(token: Path) -> Iterator[tuple[Ask, list[bool]]]:
    alive = [True]
    registry = CollectorRegistry()
    listener = Listener(Address("127.0.0.1", 0, token), registry, lambda: alive[0])

    def ask(path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", listener.port, timeout=60)
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    yield ask, alive
    listener.close()


def test_who_gets_the_metrics(served: tuple[Ask, list[bool]], token: Path) -> None:
    ask, _ = served
    assert ask("/metrics")[0] == 401
    assert ask("/metrics", Authorization="Bearer made-up-toke")[0] == 401
    assert ask("/metrics", Authorization="Basic made-up-token")[0] == 401
    assert ask("/metrics", Authorization="Bearer made-up-token")[0] == 200
    token.write_text("renewed")
    assert ask("/metrics", Authorization="Bearer made-up-token")[0] == 401
    assert ask("/metrics", Authorization="Bearer renewed")[0] == 200
    token.unlink()
    assert ask("/metrics", Authorization="Bearer ")[0] == 401


def test_what_else_it_answers(served: tuple[Ask, list[bool]]) -> None:
    ask, alive = served
    assert ask("/healthz") == (200, "200 OK\n")
    alive[0] = False
    assert ask("/healthz")[0] == 503
    assert ask("/")[0] == 404
    assert ask("/metrics", "POST")[0] == 405


def test_a_port_that_is_taken(served: tuple[Ask, list[bool]]) -> None:
    first = Listener(Address("127.0.0.1", 0), CollectorRegistry(), lambda: True)
    with pytest.raises(ConflictError, match="can't listen"):
        Listener(Address("127.0.0.1", first.port), CollectorRegistry(), lambda: True)
    first.close()


# --- loop and command -------------------------------------------------------------------------------------------------


def test_what_changes_is_told_once(host: Path) -> None:
    said: list[str] = []
    readers = Readers(NODE, host, LONG)
    agent = Agent(readers, told=said.append)
    agent.once()
    agent.once()
    assert len(said) == 4
    port = next(host.glob("sys/devices/pci0/*/infiniband/mlx5_1/ports/1"))
    (port / "state").write_text("1: DOWN\n")
    agent.once()
    assert len(said) == 5 and said[4].startswith(f"{NODE}: rackyard.io/NICDown: True: NICDown: mlx5_1 port 1 is DOWN")
    assert agent.alive()
    readers.close()


class Refusing:
    """A writer whose node may not be read."""

    def write(self, _view: object, _clock: float) -> tuple[Wrote, ...]:
        return (Wrote("read", RackyardError("GET: 403", where="there", why="no rights", fix="grant them")),)


def test_an_error_is_printed_as_errors_are(tmp_path: Path) -> None:
    said: list[str] = []
    readers = Readers(NODE, tmp_path, LONG)
    agent = Agent(readers, writer=cast(Writer, Refusing()), told=said.append)
    agent.once()
    readers.close()
    told = "GET: 403\n  at:  there\n  why: no rights\n  fix: grant them"
    assert said[-1] == f"{NODE}: reading the node: {told}"
    assert [str(error) for error in agent.failed] == [told]


def test_the_command_once(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["agent", "--node", NODE, "--once", "--root", str(host), "--timeout", "2m"]
    done = CliRunner().invoke(kube, [*words, "-o", "json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert {one["status"] for one in said["conditions"]} == {"False"}
    assert said["labels"]["rackyard.io/clique"] == "7"
    monkeypatch.setenv("NVML_DOWN", "1")
    done = CliRunner().invoke(kube, words)
    assert done.exit_code == 4
    assert "NVLinksDown" in done.stdout and "rackyard.io/degraded-links" in done.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--every", "30"], "not a duration"),
        (["--every", "0s"], "over 0"),
        (["--mode", "both"], "'both' is not one of"),
        (["--root", "/absent"], "does not exist"),
    ],
)
def test_words_that_are_refused(words: list[str], text: str) -> None:
    done = CliRunner().invoke(kube, ["agent", "--node", "n", *words])
    assert done.exit_code == 2 and text in done.output


def test_it_serves_until_it_is_told_to_end(host: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ["kube", "agent", "--node", NODE, "--root", str(host), "--every", "1s", "--metrics", "0"]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "rackyard", *words], stdout=out, stderr=out, env=os.environ.copy()
        )
    try:
        until("it has looked", lambda: "NICDown: False" in log.read_text())
        port = int(log.read_text().split("metrics on port ")[1].split()[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        assert 'rackyard_node_gpus{health="healthy"} 4.0' in text
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert "Traceback" not in log.read_text()
