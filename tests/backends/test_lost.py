"""Nodes that are lost, controllers that are killed, and agents that outlive them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from localsite import LocalSite

from rackyard.backends.local import LocalBackend, client, places, procs
from rackyard.errors import ConflictError
from rackyard.faults.observations import NodeLost, NodeUp, NodeWarm, RankExited, RankStarted, StepDone

LOOP = """
    import itertools, time, rackyard
    for step in itertools.count(1):
        rackyard.report_step(step)
        time.sleep(0.05)
"""


def _running(site: LocalSite, warm: tuple[str, ...] = ("json",)) -> None:
    site.script(LOOP)
    site.backend.launch(site.plan(f"{sys.executable} train.py", nodes=("n0", "n0", "n1"), warm=warm))
    site.wait(StepDone, rank=2)
    site.wait(RankStarted, 3)


def test_a_dead_agent_is_a_lost_node_with_nothing_left_running(site: LocalSite) -> None:
    _running(site)
    (up,) = site.all(NodeUp, node="n0")
    pids = [started.pid for started in site.all(RankStarted, node="n0")]
    os.kill(up.pid, signal.SIGKILL)
    (lost,) = site.wait(NodeLost)
    assert (lost.node, lost.why) == ("n0", "agent ended")
    assert not any((found := procs.stat(pid)) and found.state not in "ZX" for pid in pids)
    assert site.backend.nodes() == {"n0": False, "n1": True}
    # Said once, to this controller and, from the journal, to any other.
    site.observe(0.3)
    assert len(site.all(NodeLost)) == 1
    with LocalBackend(site.state) as other:
        assert [seen for seen in other.observe({}, 0)[0] if isinstance(seen, NodeLost)] == [lost]


def test_a_lost_node_comes_back_only_when_revived(site: LocalSite) -> None:
    _running(site)
    os.kill(site.all(NodeUp, node="n0")[0].pid, signal.SIGKILL)
    site.wait(NodeLost)
    plan = site.plan(f"{sys.executable} train.py", nodes=("n0",), attempt=2)
    with pytest.raises(ConflictError, match="n0 is lost"):
        site.backend.launch(plan)
    with pytest.raises(ConflictError):
        site.backend.prepare(["n0"], plan)
    site.backend.revive("n0")
    site.backend.launch(plan)
    site.wait(StepDone, attempt=2)
    assert len(site.all(NodeUp, node="n0")) == 2
    assert site.backend.nodes() == {"n0": True, "n1": True}
    assert len(site.all(NodeLost)) == 1


def test_an_agent_that_died_unseen_is_found_by_the_next_controller(site: LocalSite) -> None:
    _running(site)
    site.backend.close()
    os.kill(site.all(NodeUp, node="n0")[0].pid, signal.SIGKILL)
    # Before anybody has looked, the node can't be used again either.
    site.backend = LocalBackend(site.state, lost_after=2.0)
    site.backend.launch(site.plan(f"{sys.executable} train.py", nodes=("n0",), attempt=2))
    site.wait(NodeLost, node="n0")
    assert not site.all(RankStarted, attempt=2)


def test_a_silent_agent_is_a_lost_node(site: LocalSite) -> None:
    _running(site)
    (up,) = site.all(NodeUp, node="n1")
    (rank,) = site.all(RankStarted, node="n1")
    os.kill(up.pid, signal.SIGSTOP)
    (lost,) = site.wait(NodeLost)
    assert (lost.node, lost.why) == ("n1", "no heartbeat for 2 s")
    assert all((found := procs.stat(pid)) is None or found.state in "ZX" for pid in (up.pid, rank.pid))


def test_clients_that_hang_up_at_any_time_do_no_harm(site: LocalSite) -> None:
    _running(site)
    (up,) = site.all(NodeUp, node="n0")
    card = places.read_card(site.state / "nodes" / "n0" / places.AGENT)
    assert card is not None
    os.kill(up.pid, signal.SIGSTOP)
    for text in (b"", b'{"op":"watch"}\n', b'{"op":"hello"}\n{"op":"hello"}\n', b'{"op":"wa', b"nonsense\n", b"[]\n"):
        with client.connect(card, 1.0) as channel:
            channel.sendall(text)
    os.kill(up.pid, signal.SIGCONT)
    last = site.wait(StepDone, rank=0)[-1].step
    site.wait(StepDone, rank=0, step=last + 5)
    assert site.backend.nodes() == {"n0": True, "n1": True}


def test_an_agent_of_an_earlier_boot_is_lost_and_nobody_is_killed_for_it(site: LocalSite) -> None:
    folder = site.state / "nodes" / "n0"
    folder.mkdir(parents=True)
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    found = procs.identify(bystander.pid)
    assert found is not None
    # Pid and even start time can come again after a reboot.
    old = found._replace(boot="an-earlier-boot")
    places.write_card(folder / places.AGENT, places.AgentCard("n0", old, str(site.folder / "none")))
    fields = {"wall": 1.0, "mono": 9e9, "node": "n0", "pid": old.pid}
    lines = [fields | {"kind": "NodeUp"}, fields | {"kind": "WarmStarted", "job": "j", "start": old.start}]
    (folder / places.JOURNAL).write_text("".join(json.dumps(line) + "\n" for line in lines))
    site.wait(NodeLost)
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    # The journal is from here on not sorted by the clock that started anew, but by itself.
    assert [type(seen) for seen in site.seen] == [NodeUp, NodeLost]
    (folder / places.JOURNAL).unlink()


def test_a_torn_journal_line_is_skipped(site: LocalSite) -> None:
    site.script("")
    site.exits(site.plan(f"{sys.executable} train.py"))
    site.backend.release(["n0"])
    while site.backend.nodes():
        site.observe(0.05)
    with (site.state / "nodes" / "n0" / places.JOURNAL).open("a") as journal:
        journal.write('{"wall":1,"mono":')
    site.observe()
    site.exits(site.plan(f"{sys.executable} train.py", attempt=2))
    assert len(site.all(RankExited)) == 2


CONTROLLER = """
    import json, sys
    from pathlib import Path
    from rackyard.backends.local import LocalBackend
    from rackyard.launch.plan import LaunchPlan, RankPlan

    state, work, cursor_file = map(Path, sys.argv[1:])
    backend = LocalBackend(state)
    ranks = tuple(RankPlan(r, 0, f"n{r}", {}) for r in range(2))
    run, logs = f"{sys.executable} train.py", str(work / "logs")
    backend.launch(LaunchPlan("job", 1, run, str(work), {}, ("json",), ranks, logs))
    cursor = {}
    while True:
        seen, cursor = backend.observe(cursor, 1.0)
        for one in seen:
            print(type(one).__name__, getattr(one, "rank", "-"), getattr(one, "step", "-"), one.wall)
        sys.stdout.flush()
        cursor_file.with_suffix(".new").write_text(json.dumps(cursor))
        cursor_file.with_suffix(".new").replace(cursor_file)
"""


def test_a_killed_controller_misses_nothing(site: LocalSite) -> None:
    site.script(LOOP)
    script, cursor, output = site.work / site.script(CONTROLLER, "control.py"), site.folder / "c", site.folder / "out"
    with output.open("w") as file:
        arguments = [sys.executable, script, site.state, site.work, cursor]
        controller = subprocess.Popen(arguments, stdout=file, start_new_session=True)
        while "StepDone 1 5" not in output.read_text():
            assert controller.poll() is None
            time.sleep(0.02)
        controller.kill()
        controller.wait()
    time.sleep(0.3)
    site.cursor = json.loads(cursor.read_text())
    last = max(step.step for step in site.wait(StepDone, 6))
    site.wait(StepDone, step=last + 3)
    with LocalBackend(site.state) as third:
        again, _ = third.observe({}, 0)
    everything = [type(one).__name__ for one in again]
    assert everything.count("NodeUp") == 2
    assert everything.count("RankStarted") == 2
    # What the first has printed and what the second has seen make up the journal, without a gap.
    printed = {line.split()[-1] for line in output.read_text().splitlines()}
    seen = {str(one.wall) for one in site.seen}
    # The ranks go on meanwhile: what they said while the second was looking last, it may not have seen.
    until = max(one.wall for one in site.seen) - 0.5
    assert {str(one.wall) for one in again if one.wall < until} - seen - printed == set()
    site.backend.stop("job", 1, grace=1)
    site.wait(RankExited, 2)


def test_agents_end_themselves_when_idle_or_released_or_shut_down(site: LocalSite) -> None:
    site.script(LOOP)
    site.backend = LocalBackend(site.state, idle=0.5)
    plan = site.plan(f"{sys.executable} train.py", nodes=("n0", "n1"), warm=("json",))
    site.backend.prepare(["n2"], plan)
    site.backend.launch(plan)
    site.backend.release(["n0"])
    while "n2" in site.backend.nodes():
        time.sleep(0.1)
    # Released, but not as long as it has something to run.
    assert site.backend.nodes() == {"n0": True, "n1": True}
    site.backend.stop("job", 1, grace=1)
    site.wait(RankExited, 2)
    while "n0" in site.backend.nodes():
        site.observe(0.1)
    site.backend.shutdown()
    while site.backend.nodes():
        site.observe(0.1)
    assert not site.processes()
    assert not site.all(NodeLost)
    assert not site.all(NodeWarm, node="n3")


def test_a_state_directory_with_a_long_path_works(tmp_path: Path) -> None:
    site = LocalSite(tmp_path / ("long-" * 20) / ("path-" * 20))
    try:
        site.script("import rackyard; rackyard.report_step(1)")
        site.exits(site.plan(f"{sys.executable} train.py"))
        site.wait(StepDone)
        (folder,) = (site.state / "nodes").glob("*")
        card = places.read_card(folder / places.AGENT)
        assert card is not None
        assert Path(card.sockets).stat().st_mode & 0o777 == 0o700
    finally:
        site.clean_up()


def test_a_sockets_folder_of_somebody_elses_making_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / f"rackyard-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(PermissionError, match="mode 0700"):
        places.sockets_dir(tmp_path / "n0")
