"""What a cluster must have before a job can be given to it; what is missing is named."""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from rackyard.backends.kubernetes.client import JSON, METADATA, ApiError
from rackyard.backends.kubernetes.jobobjects import Named
from rackyard.backends.kubernetes.reader import Reader
from rackyard.errors import RackyardError, UsageError

_PLANS = "/apis/rackyard.io/v1alpha1"
_QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@dataclass(frozen=True, slots=True)
class Ground(Reader):
    """One namespace of a cluster. Who may not look at something is told nothing of it, and may still submit."""

    def ready(self, queue: str, priority: str) -> None:
        """Whether the cluster can do anything with a job in that queue and, unless empty, of that PriorityClass.

        UsageError where it has none of that name, RackyardError where something is not installed.
        """
        try:
            self.client.get(self.path(_PLANS, "gangplans"), {"limit": "1"}, JSON)
        except ApiError as error:
            if error.status.code == 404:
                raise _absent(error, "Rackyard's GangPlan", "kubectl apply -f deploy/crd.yaml") from None
            if error.status.code != 403:
                raise
        try:
            self._named("queue", queue, self.items(_QUEUES, Named, {}))
        except ApiError as error:
            if error.status.code == 404:
                raise _absent(error, "Volcano", "install it, or name another cluster with --context") from None
            if error.status.code != 403:
                raise
        if priority:
            self._named("PriorityClass", priority, self.maybe(_CLASSES, Named, shy=True))

    def there(self) -> None:
        """UsageError where the namespace is not: lists of its objects are just empty."""
        path = f"/api/v1/namespaces/{quote(self.namespace, safe='')}"
        try:
            self.client.get(path, {}, METADATA.format("PartialObjectMetadata"))
        except ApiError as error:
            if error.status.code == 404:
                raise self._no_namespace() from None
            if error.status.code != 403:
                raise

    def missing(self, error: ApiError) -> RackyardError:
        """What is not there, where a job could not be created for a 404."""
        details = error.status.details
        if details is not None and details.kind == "namespaces":
            return self._no_namespace()
        return _absent(error, "Volcano", "install it, or give the job to another cluster")

    def _no_namespace(self) -> UsageError:
        return UsageError(
            f"no namespace {self.namespace!r}",
            where=self.client.server,
            fix=f"name another one with -n, or make it: kubectl create namespace {self.namespace}",
        )

    def _named(self, what: str, name: str, found: Iterable[Named] | None) -> None:
        if found is None or name in (known := [one.metadata.name for one in found]):
            return
        near = difflib.get_close_matches(name, known, 1)
        fix = f"did you mean {near[0]}? " if near else ""
        where = self.client.server
        raise UsageError(f"the cluster has no {what} {name!r}", where=where, fix=f"{fix}there are: {', '.join(known)}")


def _absent(error: ApiError, what: str, fix: str) -> RackyardError:
    why = error.status.message or None
    return RackyardError(f"the cluster does not know {what}", where=error.where, why=why, fix=fix)
