"""What a job's objects say, as lines for people. Pure."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from rackyard.jobs.kubejob import KubeJob, Said, cause

MOST = 8
"""Lines of one kind."""
_LONGEST = 400
"""Characters of a message."""
_DUMPED = re.compile(r'\bMessage:"((?:[^"\\]|\\.)+)"')
"""In an error that a controller printed as the Go structure that it is (`%#v` of an errors.StatusError)."""
_COMBINED = "(combined from similar events): "
"""What client-go puts before a message that stands for several (record/events_cache.go)."""
_POD = re.compile(r'\bpods? "[^"]*"')
"""Which of the pods it was: each has its own number or random letters."""


def inner(message: str) -> str:
    """A message on one line; of a dumped structure, the words of the first error in it."""
    if (found := _DUMPED.search(message)) is not None:
        message = _unquoted(found[1])
    text = " ".join(message.removeprefix(_COMBINED).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _unquoted(text: str) -> str:
    """A Go string's content; most of its escapes are JSON's, too."""
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text.replace('\\"', '"').replace("\\\\", "\\")


def once(events: Iterable[Said]) -> list[Said]:
    """Events of one content once, in the place and the words of the newest, `times` as often as they were seen."""
    found: dict[tuple[str, str], Said] = {}
    for event in events:
        told = replace(event, message=inner(event.message))
        key = told.reason, _POD.sub("pod", told.message)
        before = found.pop(key, None)
        found[key] = told if before is None else replace(told, times=before.times + told.times)
    return list(found.values())


def events(job: KubeJob) -> tuple[str, ...]:
    """The newest events, oldest first."""
    return tuple(
        f"{one.reason}: {one.message}" + (f" ({one.times} times)" if one.times > 1 else "")
        for one in once(job.events)[-MOST:]
    )


def conditions(of: str, found: Mapping[str, Said]) -> tuple[str, ...]:
    """Conditions of an object."""
    return tuple(f"{of}: {kind}={said.status}: {said.reason}: {said.message}" for kind, said in sorted(found.items()))


def history(job: KubeJob) -> tuple[str, ...]:
    """What ended each attempt, and how far the job is."""
    lines = [
        f"attempt {before.attempt}: {cause(before, after, job.nodes) or 'it was given up'}"
        for before, after in zip(job.plans, job.plans[1:], strict=False)
    ]
    return (*lines, f"newest step {job.step}") if job.step else tuple(lines)


def uncreated(job: KubeJob) -> str:
    """Why its pods could not be created, as whoever makes them said since its last attempt; empty where they could."""
    since = max((plan.created for plan in job.plans), default=0.0)
    told = [one for one in job.events if one.reason == "FailedCreate" and one.at >= since]
    return inner(told[-1].message) if told else ""
