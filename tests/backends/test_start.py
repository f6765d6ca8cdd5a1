"""Starting ranks: fresh and forked must be the same to the script."""

import json
import re
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from localsite import LocalSite

from rackyard.faults.observations import NodeUp, NodeWarm, RankExited, RankStarted, StepDone

FRESH: tuple[str, ...] = ()
FORKED = ("json",)

ENDINGS = {
    "returns": ("print('done')", 0, None, "done"),
    "exit code": ("import sys; sys.exit(7)", 7, None, ""),
    "exit text": ("raise SystemExit('bad luck')", 1, None, "bad luck"),
    "exit none": ("raise SystemExit", 0, None, ""),
    "exception": ("def f():\n    1 / 0\nf()", 1, None, "ZeroDivisionError"),
    "syntax": ("def f(:", 1, None, "SyntaxError"),
    "hook": (
        "import sys\nsys.excepthook = lambda *a: print('hooked', a[0].__name__)\n{}[1]",
        1,
        None,
        "hooked KeyError",
    ),
    "os exit": ("import os; print('x', end=''); os._exit(9)", 9, None, "x"),
    "signal": ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", None, signal.SIGTERM, ""),
    "interrupt": (
        "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(5)",
        None,
        signal.SIGINT,
        "",
    ),
    "at exit": ("import atexit; atexit.register(print, 'bye'); print('hi'); raise SystemExit(3)", 3, None, "hi\nbye"),
    "thread": (
        "import threading, time\nx = 4\ndef late(): time.sleep(.2); print('late', x, __name__)\n"
        "threading.Thread(target=late).start()",
        0,
        None,
        "late 4 __main__",
    ),
    "logging": ("import logging; logging.basicConfig(level=20); logging.info('said')", 0, None, "INFO:root:said"),
}

FACTS = """
    import json, logging, multiprocessing, os, signal, sys, threading

    def child(queue):
        queue.put([__name__, sys.argv, os.getpid() != parent])

    parent = os.getppid()
    if __name__ == "__main__":
        queue = multiprocessing.get_context("spawn").SimpleQueue()
        one = multiprocessing.get_context("spawn").Process(target=child, args=(queue,))
        one.start()
        said = queue.get()
        one.join()
        print(json.dumps({
            "argv": sys.argv, "orig": sys.orig_argv[1:], "path": sys.path, "cwd": os.getcwd(), "file": __file__,
            "main": sorted(k for k in vars(sys.modules["__main__"])), "doc": __doc__, "package": __package__,
            "spec": __spec__ and __spec__.name, "loader": type(__loader__).__name__,
            "builtins": type(__builtins__).__name__,
            "env": {k: v for k, v in os.environ.items() if k not in ("LC_CTYPE", "RACKYARD_ATTEMPT")},
            "child": said, "exit": one.exitcode, "stdin": sys.stdin.read(), "interactive": sys.flags.interactive,
            "unbuffered": sys.stdout.write_through, "encoding": sys.stdout.encoding, "errors": sys.stdout.errors,
            "leader": os.getsid(0) == os.getpid() == os.getpgrp(), "threads": threading.active_count(),
            "signals": {s.name: str(signal.getsignal(s)) for s in signal.valid_signals() if s < 32},
            "mask": [str(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
            "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd"))[:3], "nice": os.nice(0),
            "handler": logging.root.handlers, "flags": list(sys.flags), "exit_code": one.exitcode,
        }))
"""


@pytest.mark.parametrize("name", ENDINGS)
def test_an_ending_is_the_same_forked_and_fresh(site: LocalSite, name: str) -> None:
    script, code, number, output = ENDINGS[name]
    site.script(script)
    logs = []
    for attempt, warm in enumerate((FRESH, FORKED), start=1):
        plan = site.plan("python train.py", attempt=attempt, warm=warm, env={"PATH": str(Path(sys.executable).parent)})
        (exited,) = site.exits(plan)
        assert (exited.code, exited.signal) == (code, number), exited
        (started,) = site.wait(RankStarted, attempt=attempt)
        assert started.forked == bool(warm)
        logs.append(site.log(plan))
        assert output in exited.tail
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    "run", ["{python} train.py --a 'b c' \"d\"", "{python} -u -m pack.train --a x", "{python} sub/link.py"]
)
def test_a_script_finds_the_same_world_forked_and_fresh(site: LocalSite, run: str) -> None:
    site.script(FACTS)
    for folder in ("pack", "sub"):
        (site.work / folder).mkdir()
    (site.work / "pack" / "__init__.py").touch()
    site.script(FACTS, "pack/train.py")
    (site.work / "sub" / "link.py").symlink_to(site.work / "pack" / "train.py")
    found: list[dict[str, Any]] = []
    for attempt, warm in enumerate((FRESH, FORKED), start=1):
        plan = site.plan(
            run.format(python=sys.executable), attempt=attempt, warm=warm, env={"OWN": "1", "PYTHONPATH": "lib"}
        )
        (exited,) = site.exits(plan)
        assert exited.code == 0, exited.tail
        assert site.wait(RankStarted, attempt=attempt)[0].forked == bool(warm)
        found.append(json.loads(site.log(plan).splitlines()[-1]))
    assert found[0] == found[1]
    assert found[0]["env"]["OWN"] == "1"
    assert found[0]["env"]["RANK"] == "0"
    assert found[0]["leader"]


@pytest.mark.parametrize("warm", [FRESH, FORKED])
@pytest.mark.parametrize(("run", "code"), [("nothing.py", 2), ("-m nothing_here", 1)])
def test_a_missing_script_says_so_in_pythons_words(site: LocalSite, run: str, code: int, warm: tuple[str, ...]) -> None:
    (exited,) = site.exits(site.plan(f"{sys.executable} {run}", warm=warm))
    assert exited.code == code
    assert re.search("can't open file .*/nothing.py|No module named nothing_here", exited.tail)


@pytest.mark.parametrize("warm", [FRESH, FORKED])
def test_what_can_not_be_started_has_ended(site: LocalSite, warm: tuple[str, ...]) -> None:
    site.script("")
    (exited,) = site.exits(site.plan(f"{sys.executable} train.py", warm=warm, cwd="/nowhere"))
    assert exited.code == 127
    assert "/nowhere" in exited.tail
    (exited,) = site.exits(site.plan("no-such-program --x", attempt=2, warm=warm))
    assert exited.code == 127
    assert "no-such-program" in exited.tail


def test_shell_text_is_given_to_the_shell_verbatim(site: LocalSite) -> None:
    plan = site.plan("for i in 1 2; do echo $i-$RANK; done | cat\nexit 4", nodes=("n0", "n0"))
    first, second = site.exits(plan)
    assert (first.code, second.code) == (4, 4)
    assert site.log(plan, 1) == "1-1\n2-1\n"


def test_a_launch_may_be_repeated(site: LocalSite) -> None:
    site.script("import time; print('one'); time.sleep(0.3)")
    plan = site.plan(f"{sys.executable} train.py", nodes=("n0", "n1"), warm=FORKED)
    for _ in range(3):
        site.backend.launch(plan)
    site.wait(RankExited, 2)
    site.backend.launch(plan)
    site.backend.release(["n0", "n1"])
    while site.backend.nodes():
        site.observe(0.1)
    # A new agent knows from the journal what the last one has started.
    site.backend.launch(plan)
    site.wait(NodeUp, 4)
    assert site.backend.nodes() == {"n0": True, "n1": True}
    assert len(site.all(RankStarted)) == 2
    assert site.log(plan) == "one\n"


def test_ranks_wait_for_the_warm_parent_and_share_its_imports(site: LocalSite) -> None:
    site.script("import time; time.sleep(0.5); import os; PID = os.getpid()", "slow_import.py")
    site.script(
        "import slow_import, random, rackyard\nrackyard.report_step(1, parent=slow_import.PID, r=random.random())"
    )
    plan = site.plan(f"{sys.executable} train.py", nodes=("n0",) * 3, warm=("slow_import",))
    site.backend.prepare(["n0"], plan)
    site.exits(plan)
    (warm,) = site.wait(NodeWarm)
    assert warm.seconds > 0.4
    assert warm.modules == ("slow_import",)
    assert not warm.problem
    steps = site.all(StepDone)
    assert len({step.metrics["parent"] for step in steps}) == 1
    assert len({step.metrics["r"] for step in steps}) == 3
    # The next attempt finds it warm, although its own variables differ.
    site.exits(
        site.plan(f"{sys.executable} train.py", attempt=2, warm=("slow_import",), env={"RACKYARD_RESUME_STEP": "5"})
    )
    assert len(site.all(NodeWarm)) == 1
    # A variable that imports may have read makes it another parent.
    site.exits(site.plan(f"{sys.executable} train.py", attempt=3, warm=("slow_import",), env={"OTHER": "5"}))
    assert len(site.all(NodeWarm)) == 2


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        ("import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "thread"),
        ("import not_there", "can't import unfit: ModuleNotFoundError"),
        ("import os; os._exit(3)", "ended by itself"),
    ],
)
def test_an_unfit_parent_says_why_and_ranks_start_fresh(site: LocalSite, module: str, problem: str) -> None:
    site.script(module, "unfit.py")
    site.script("print('ran')")
    plan = site.plan(f"{sys.executable} train.py", warm=("unfit",))
    (exited,) = site.exits(plan)
    assert exited.code == 0
    assert site.log(plan) == "ran\n"
    (warm,) = site.wait(NodeWarm)
    assert problem in warm.problem
    assert not site.wait(RankStarted)[0].forked


def test_a_command_that_can_not_be_forked_says_so(site: LocalSite) -> None:
    (exited,) = site.exits(site.plan("true", warm=FORKED))
    assert exited.code == 0
    assert "can be forked" in site.wait(NodeWarm)[0].problem


def test_torch_ranks_are_forked_and_reduce_together(site: LocalSite) -> None:
    if find_spec("torch") is None:
        pytest.skip("torch is not installed")
    site.script("""
        import os, torch, torch.distributed as dist
        import rackyard
        store = "file://" + __file__ + ".store"
        dist.init_process_group("gloo", init_method=store, rank=int(os.environ["RANK"]), world_size=4)
        x = torch.full((4,), float(dist.get_rank()))
        dist.all_reduce(x)
        rackyard.report_step(1, sum=float(x[0]))
        dist.destroy_process_group()
    """)
    plan = site.plan(f"{sys.executable} train.py", nodes=("n0",) * 4, warm=("torch", "torch.distributed"))
    exits = site.exits(plan, timeout=90)
    assert [exited.code for exited in exits] == [0] * 4, exits
    assert [step.metrics["sum"] for step in site.all(StepDone)] == [6.0] * 4
    assert all(started.forked for started in site.all(RankStarted))
