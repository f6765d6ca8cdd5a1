"""Wakes Volcano Jobs that Volcano has forgotten in the middle of a restart.

A restart deletes the Job's pods and its PodGroup, and goes on when something happens to the Job. What happens while
the job controller still believes in the old PodGroup, and that in phase Pending, changes nothing; when the last pod
has gone by then, nothing will ever happen again, and the Job stays Restarting (Volcano 1.14.1, `syncJob`; a pod that
failed is deleted at once, so gangs of one pod hit it about once in fifteen restarts). A Command to sync is an event
like any other, and does no harm where none was missing.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

import msgspec

from rackyard.backends.kubernetes.client import JSON, ApiError, Client
from rackyard.backends.kubernetes.jobobjects import VolcanoJob, seconds
from rackyard.backends.kubernetes.jobs import command
from rackyard.controller.kube.objects import GANG
from rackyard.errors import RackyardError

EVERY = 5.0
"""Seconds between two looks."""
STILL = 4.0
"""Seconds in phase Restarting after which a Job without pods counts as forgotten: on its own it takes one or two."""
_JOBS = "/apis/batch.volcano.sh/v1alpha1/jobs"


def asleep(jobs: Iterable[VolcanoJob], now: float) -> list[VolcanoJob]:
    """Those that may be forgotten, as far as they say themselves. Pure."""
    return [
        job
        for job in jobs
        if job.status.state.phase == "Restarting"
        and now - seconds(job.status.state.last_transition_time) > STILL
        and not job.metadata.deletion_timestamp
    ]


@dataclass
class Waker:
    """Looks for such Jobs of ours. It may: list jobs.batch.volcano.sh and pods, create commands.bus.volcano.sh."""

    client: Client
    tell: Callable[[str, str, str], None]
    act: bool = True
    wall: Callable[[], float] = time.time
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until `stop`; returns at once on a cluster without Volcano."""
        while not self._stopped.wait(EVERY):
            try:
                self.look()
            except ApiError as error:
                if error.status.code == 404:
                    return
                self.tell("", "Trouble", str(error))
            except RackyardError as error:
                self.tell("", "Trouble", str(error))

    def stop(self) -> None:
        """End `run`."""
        self._stopped.set()

    def look(self) -> int:
        """Wake what sleeps now; how many that were."""
        found = [job for job in asleep(self._jobs(), self.wall()) if not self._has_pods(job)]
        for job in found:
            told = "Volcano has forgotten its restart; it is told to go on"
            self.tell(f"{job.metadata.namespace}/{job.metadata.name}", "Woken", told)
            if self.act:
                command(self.client, job.metadata, "SyncJob", "Woken", told)
        return len(found)

    def _jobs(self) -> list[VolcanoJob]:
        ask: Mapping[str, str] = {"labelSelector": GANG, "resourceVersion": "0"}
        return msgspec.json.decode(self.client.get(_JOBS, ask, JSON), type=_JobList).items

    def _has_pods(self, job: VolcanoJob) -> bool:
        path = f"/api/v1/namespaces/{quote(job.metadata.namespace, safe='')}/pods"
        ask = {"labelSelector": f"volcano.sh/job-name={job.metadata.name}", "limit": "1"}
        return bool(msgspec.json.decode(self.client.get(path, ask, JSON), type=_Any).items)


class _JobList(msgspec.Struct, frozen=True):
    items: list[VolcanoJob] = []


class _Any(msgspec.Struct, frozen=True):
    items: list[msgspec.Raw] = []
