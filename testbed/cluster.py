"""One cluster: started, watched, broken on purpose and ended.

with cluster(tmp_path / "cluster", parts=("volcano", "kwok")) as bed:
    bed.api.get("/version")
    bed.restart("kube-apiserver")
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from rackyard.backends.local.procs import Identity, alive
from rackyard.errors import NotYet, RackyardError, UsageError
from testbed import kueue, layout, operators, processes, volcano
from testbed.access import answers, certificate, write_kubeconfig
from testbed.api import Api
from testbed.build import require
from testbed.families import wanted
from testbed.layout import Layout, Plan
from testbed.options import Options
from testbed.programs import ORDER, launch, launches

READY = 90.0
"""Seconds a program may take until it is ready; two to ten are usual on two cores that others use too."""

_IN_USE = "address already in use"
_TRIES = 3

_SETUP = {"volcano": volcano.setup, "kueue": kueue.setup, **operators.SETUP}
_SETTLED = {"vc-scheduler": volcano.settled, "kueue": kueue.settled, "lws": operators.lws_settled}
"""What is waited for beyond a program's own word that it is ready."""


class PortTaken(RackyardError):
    """Somebody took a port between our look and the program's start."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that was started. `flags` and other settings stay as they were when it was made."""

    layout: Layout
    plan: Plan

    @classmethod
    def start(cls, folder: Path, options: Options) -> "Cluster":
        """Start a cluster in `folder`, which must be empty or absent, and wait until it is ready. What was started is
        ended again when that fails. UsageError when it is not built, RackyardError when a program fails.
        """
        require(wanted(options.parts))
        for tried in range(1, _TRIES + 1):
            found = cls(*layout.create(folder, options))
            try:
                found._bring_up()
                return found
            except PortTaken:
                found.down()
                if tried == _TRIES:
                    raise
            except BaseException:
                found.down()
                raise
        raise AssertionError("unreachable")

    @classmethod
    def open(cls, folder: Path) -> "Cluster":
        """The cluster that was started in `folder`. UsageError when there is none."""
        return cls(*layout.read(folder))

    @property
    def folder(self) -> Path:
        return self.layout.folder

    @property
    def kubeconfig(self) -> Path:
        return self.layout.kubeconfig

    @cached_property
    def api(self) -> Api:
        """Requests as the cluster's administrator."""
        return Api.of(self.kubeconfig)

    def running(self) -> dict[str, Identity]:
        """The programs that run now."""
        return {one.name: one.who for one in processes.noted(self.layout.pids) if alive(one.who)}

    def memory(self) -> dict[str, int]:
        """Resident bytes of every running program."""
        return {name: processes.resident(who) for name, who in self.running().items()}

    def logs(self, program: str) -> str:
        """All that a program has printed so far, its earlier starts included."""
        file = self.layout.log(self._known(program))
        return file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""

    def kill(self, program: str) -> None:
        """SIGKILL, as a crash would be."""
        self._end(program, 0.0)

    def stop(self, program: str) -> None:
        """SIGTERM, and SIGKILL when that does not help."""
        self._end(program, processes.GRACE)

    def restart(self, program: str, *, hard: bool = False) -> None:
        """End a program (`hard`: by SIGKILL) and start it again; returns when it is ready."""
        self._end(program, 0.0 if hard else processes.GRACE)
        self.resume(program)

    def resume(self, program: str) -> None:
        """Start a program that was ended; returns when it is ready. UsageError when it runs."""
        if self._known(program) in self.running():
            raise UsageError(f"{program} runs already", where=str(self.folder))
        self._launch(program)
        # etcd has no address to ask, but the API server says whether it reaches it.
        self._await("kube-apiserver" if program == "etcd" and "kube-apiserver" in self.running() else program)

    def down(self) -> None:
        """End everything that was started, controllers first and etcd last, and delete the folder."""
        runs = self.running()
        last = ("kube-apiserver", "etcd")
        for names in ([name for name in runs if name not in last], *([name] for name in last)):
            processes.stop(runs[name] for name in names if name in runs)
        processes.stop(processes.marked(self.plan.mark))  # whose pid file was not written any more
        if "api" in self.__dict__:
            self.api.close()
        layout.remove(self.layout, self.plan)

    def _bring_up(self) -> None:
        self._launch("etcd")
        self._launch("kube-apiserver")
        self._await("kube-apiserver")
        write_kubeconfig(self.layout, self.plan)
        # The controller manager comes after the definitions of the parts: its garbage collector looks for new kinds
        # every half minute only, and leaves the pods of a deleted Volcano Job until then.
        self._launch("kube-scheduler")
        for part in self.plan.options.parts:
            if part in _SETUP:
                _SETUP[part](self.api, self.layout, self.plan)
        rest = [one.name for one in launches(self.layout, self.plan)][2:]
        for name in rest:
            if name != "kube-scheduler":
                self._launch(name)
        for name in rest:
            self._await(name)

    def _launch(self, program: str) -> None:
        found = launch(program, self.layout, self.plan)
        environment = {**found.environment, processes.MARK: self.plan.mark}
        who = processes.start(found.argv, self.folder, self.layout.log(program), environment)
        processes.note(self.layout.pids, processes.Running(program, who))

    def _await(self, program: str) -> None:
        url, ca = launch(program, self.layout, self.plan).ready, certificate(self.layout, program)
        deadline = time.monotonic() + READY
        while program in self.running():
            if not url or answers(url, ca):
                if program in _SETTLED:
                    _SETTLED[program](self.api)
                return
            if time.monotonic() >= deadline:
                raise NotYet(f"{program} is not ready after {READY:.0f} s", where=url, why=self._tail(program))
            time.sleep(0.05)
        tail = self._tail(program)
        kind = PortTaken if _IN_USE in tail else RackyardError
        raise kind(f"{program} ended while it was started", where=str(self.layout.log(program)), why=tail)

    def _tail(self, program: str, lines: int = 8) -> str:
        return "\n".join(line[:400] for line in self.logs(program).splitlines()[-lines:]) or "it has printed nothing"

    def _end(self, program: str, grace: float) -> None:
        if who := self.running().get(self._known(program)):
            processes.stop([who], grace)

    def _known(self, program: str) -> str:
        names = [name for part in ("", *self.plan.options.parts) for name in ORDER[part]]
        if program not in names:
            raise UsageError(f"the cluster has no program {program!r}", fix=f"one of {', '.join(names)}")
        return program


@contextlib.contextmanager
def cluster(folder: Path, parts: Sequence[str] = (), options: Options | None = None) -> Iterator[Cluster]:
    """A cluster for the length of a `with`; `parts` are added to those of `options`."""
    options = options or Options()
    found = Cluster.start(folder, replace(options, parts=tuple(dict.fromkeys((*options.parts, *parts)))))
    try:
        yield found
    finally:
        found.down()


def leftovers() -> Mapping[str, Path]:
    """Mark and folder of all clusters that were made on this machine by this user and not ended."""
    return dict(layout.known())


def end(mark: str, folder: Path) -> None:
    """End a cluster of the list, though its folder may be damaged or gone: its processes carry the mark."""
    try:
        found = Cluster.open(folder)
    except UsageError:
        processes.stop(processes.marked(mark))
        layout.forget(mark)
        return
    if found.plan.mark == mark:
        found.down()
    else:  # another cluster has come into that folder since
        processes.stop(processes.marked(mark))
        layout.forget(mark)
