"""Objects that tell a cluster's own schedulers of the topology: what would change, and server-side apply of it.

All of ours bear a label that says so. What is not ours is neither changed, unless asked, nor ever removed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import quote

import msgspec

from rackyard.backends.kubernetes.client import JSON, ApiError, Client
from rackyard.backends.kubernetes.nodes import FIELD_MANAGER, PAGE
from rackyard.errors import ConflictError, RackyardError

OURS = "app.kubernetes.io/managed-by"
"""The label of our objects; its value is our field manager."""

_APPLY = "application/apply-patch+yaml"  # JSON is YAML


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of cluster-scoped objects. `pruned`: ours are removed once the site no longer has them."""

    kind: str
    path: str
    of: str
    """Whose kind it is, for who has to install it."""
    pruned: bool = False


_VOLCANO, _KUEUE = "topology.volcano.sh/v1alpha1", "kueue.x-k8s.io/v1beta2"
KINDS: Mapping[tuple[str, str], Kind] = {
    (_VOLCANO, "HyperNode"): Kind("HyperNode", f"/apis/{_VOLCANO}/hypernodes", "Volcano", pruned=True),
    (_KUEUE, "Topology"): Kind("Topology", f"/apis/{_KUEUE}/topologies", "Kueue"),
    (_KUEUE, "ResourceFlavor"): Kind("ResourceFlavor", f"/apis/{_KUEUE}/resourceflavors", "Kueue"),
}
"""By apiVersion and kind."""


class Word(StrEnum):
    """What is to be done with an object."""

    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"
    FOREIGN = "not ours"
    """One of that name is there that we did not make."""
    TAKE = "take over"
    """What became of such a one, by force."""


@dataclass(frozen=True, slots=True)
class Step:
    """One object that is not as it should be. `wanted` is empty for one to be removed, `uid` for one that is not there;
    `fields` are what differs: where, what it is now, what it becomes.
    """

    kind: Kind
    name: str
    word: Word
    wanted: Mapping[str, Any]
    uid: str = ""
    fields: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a step; `error` says what, where, why and what to do unless all went well."""

    step: Step
    error: RackyardError | None = None


class _Metadata(msgspec.Struct, frozen=True):
    name: str
    uid: Annotated[str, msgspec.Meta(min_length=1)]
    labels: dict[str, str] = {}


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: dict[str, Any] = {}


class _ListMetadata(msgspec.Struct, frozen=True):
    more: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMetadata
    items: tuple[_Object, ...] = ()


def plan(client: Client, wanted: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    """What has to be done for these objects to be there, in their order, and then what is ours and no longer wanted.

    RackyardError where the cluster does not know one of the kinds; ApiError or Unreachable when it can't be asked.
    """
    steps: list[Step] = []
    for kind in dict.fromkeys(_kind(body) for body in wanted):
        there = {found.metadata.name: found for found in _read(client, kind)}
        bodies = [_labelled(body) for body in wanted if _kind(body) is kind]
        steps += (step for body in bodies if (step := _step(kind, body, there.get(body["metadata"]["name"]))))
        names = {body["metadata"]["name"] for body in bodies}
        steps += (
            Step(kind, name, Word.REMOVE, {}, found.metadata.uid)
            for name, found in there.items()
            if kind.pruned and name not in names and _ours(found)
        )
    return tuple(steps)


def apply(client: Client, steps: Iterable[Step], *, dry_run: bool = False, force: bool = False) -> Iterator[Done]:
    """Do the steps one by one. `dry_run`: the server checks and stores nothing. `force`: take over what is not ours.

    The first refusal for want of rights ends it, as it would be met again.
    """
    for step in steps:
        try:
            _do(client, step, {"dryRun": "All"} if dry_run else {}, force)
            yield Done(replace(step, word=Word.TAKE) if step.word is Word.FOREIGN else step)
        except ApiError as error:
            yield Done(step, error)
            if error.status.code in (401, 403):
                return
        except RackyardError as error:
            yield Done(step, error)
            if not isinstance(error, ConflictError):
                return


def _do(client: Client, step: Step, dry: Mapping[str, str], force: bool) -> None:
    where = f"{step.kind.path}/{quote(step.name, safe='')}"
    if step.word is Word.REMOVE:
        try:
            client.delete(where, dry, {"preconditions": {"uid": step.uid}})
        except ApiError as error:
            if error.status.code != 404:
                raise
        return
    if step.word is Word.FOREIGN and not force:
        raise ConflictError(
            f"{step.kind.kind} {step.name} is somebody else's, and stays as it is",
            where=where,
            why=f"it does not bear the label {OURS}={FIELD_MANAGER}",
            fix="delete it, or take it over with --force",
        )
    params = {"fieldManager": FIELD_MANAGER, **dry} | ({"force": "true"} if force else {})
    try:
        client.patch(where, params, JSON, _APPLY, _bound(step))
    except ApiError as error:
        causes = error.status.details.causes if error.status.details else ()
        held = [f"{cause.field}: {cause.message}" for cause in causes if cause.reason == "FieldManagerConflict"]
        if not held:
            raise
        raise ConflictError(
            f"{step.kind.kind} {step.name} was changed by somebody else, and stays as it is",
            where=where,
            why="; ".join(held),
            fix="have them stop setting it, or take it over with --force",
        ) from None


def _bound(step: Step) -> dict[str, Any]:
    """The object to apply; with its uid where it is there already, so that another of that name is left alone."""
    metadata = step.wanted["metadata"] | ({"uid": step.uid} if step.uid else {})
    return {**step.wanted, "metadata": metadata}


def _kind(body: Mapping[str, Any]) -> Kind:
    return KINDS[body["apiVersion"], body["kind"]]


def _labelled(body: Mapping[str, Any]) -> dict[str, Any]:
    labels = body["metadata"].get("labels", {}) | {OURS: FIELD_MANAGER}
    return {**body, "metadata": {**body["metadata"], "labels": labels}}


def _ours(found: _Object) -> bool:
    return found.metadata.labels.get(OURS) == FIELD_MANAGER


def _step(kind: Kind, body: Mapping[str, Any], there: _Object | None) -> Step | None:
    name = body["metadata"]["name"]
    if there is None:
        return Step(kind, name, Word.CREATE, body)
    fields = tuple(_differences("spec", there.spec, body["spec"]))
    if not _ours(there):
        return Step(kind, name, Word.FOREIGN, body, there.metadata.uid, fields)
    return Step(kind, name, Word.CHANGE, body, there.metadata.uid, fields) if fields else None


def _differences(at: str, now: Any, wanted: Any) -> Iterator[tuple[str, str, str]]:
    """Fields that we say and that are otherwise; what the server adds by itself is none."""
    if isinstance(wanted, dict) and isinstance(now, dict):
        for key, value in wanted.items():
            yield from _differences(f"{at}.{key}", now.get(key), value)
    elif now != wanted:
        yield at, _text(now), _text(wanted)


def _text(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _read(client: Client, kind: Kind) -> Iterator[_Object]:
    params = {"limit": str(PAGE)}
    while True:
        try:
            answer = msgspec.json.decode(client.get(kind.path, params, JSON), type=_List)
        except ApiError as error:
            if error.status.code != 404:
                raise
            fix = f"install {kind.of}, or its custom resource definitions"
            raise RackyardError(f"the cluster knows no {kind.kind}", where=client.server, fix=fix) from None
        except (msgspec.MsgspecError, RecursionError) as error:
            raise RackyardError(
                f"the answer of the API server is no list of {kind.kind}s", where=client.server, why=str(error)
            ) from None
        yield from answer.items
        if not answer.metadata.more:
            return
        params = params | {"continue": answer.metadata.more}
