"""Many writes at once: a gang's PATCHes go out side by side on few connections.

aiohttp sends two thousand of them for a second of CPU where httpx sends eighty (facts: scheduling §8). Each is tried
once here. Where some fail for a passing reason the ordinary client does one of them, waiting, trying again and renewing
credentials as it does, and the rest follow.
"""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from rackyard.backends.kubernetes.client import JSON, TRANSIENT, ApiError, Client, Status
from rackyard.errors import RackyardError, UsageError

try:
    import aiohttp
except ModuleNotFoundError as error:  # the extra was not installed
    raise UsageError(
        f"talking to Kubernetes needs {error.name}, which is not installed", fix="pip install 'rackyard[kubernetes]'"
    ) from None

WIDTH = 32
"""Requests under way at a time; an API server of two cores answers no faster to more."""
PATIENCE = 30.0
"""Seconds for an answer."""

Answer = bytes | RackyardError


@dataclass(frozen=True, slots=True)
class Write:
    """One request: `kind` is the media type of the body. One that is not `stubborn` is never tried again."""

    method: str
    path: str
    body: Any
    kind: str = JSON
    stubborn: bool = True


class Bulk:
    """Writes for one client; `close` it after. Use it from one thread."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bulk", daemon=True)
        self._thread.start()
        self._session: aiohttp.ClientSession | None = None

    def send(self, writes: Sequence[Write]) -> list[Answer]:
        """The bodies of the answers, in the order of the writes, or what went wrong."""
        answers: dict[int, Answer] = {}
        left = list(range(len(writes)))
        while left:
            tried = asyncio.run_coroutine_threadsafe(self._all([writes[n] for n in left]), self._loop).result()
            answers |= {n: answer for n, answer in zip(left, tried, strict=True) if answer is not None}
            left = [n for n in left if n not in answers]
            if left:
                first, *left = left
                answers[first] = answer = self._slowly(writes[first])
                if isinstance(answer, RackyardError) and _lasting(answer, writes[first]):
                    answers |= dict.fromkeys(left, answer)
                    break
        return [answers[n] for n in range(len(writes))]

    def close(self) -> None:
        """End the connections."""

        async def end() -> None:
            if self._session is not None:
                await self._session.close()

        asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _all(self, writes: Sequence[Write]) -> list[Answer | None]:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=WIDTH, ssl=self._client.tls)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=PATIENCE, sock_read=PATIENCE)
            self._session = aiohttp.ClientSession(self._client.server, connector=connector, timeout=timeout)
        try:
            headers = self._client.authorization()
        except RackyardError:
            return [None] * len(writes)  # the ordinary client says what is wrong
        return list(await asyncio.gather(*(self._each(self._session, write, headers) for write in writes)))

    async def _each(self, session: "aiohttp.ClientSession", write: Write, headers: dict[str, str]) -> Answer | None:
        """None where the ordinary client is to try."""
        sent = {**headers, "Content-Type": write.kind, "Accept": JSON}
        body = msgspec.json.encode(write.body)
        try:
            async with session.request(write.method, write.path, data=body, headers=sent) as answer:
                text = await answer.read()
        except (aiohttp.ClientError, TimeoutError):
            return None
        if answer.status < 300:
            return text
        if write.stubborn and (answer.status in (401, *TRANSIENT)):
            return None
        return refusal(write, self._client.server, answer.status, text)

    def _slowly(self, write: Write) -> Answer:
        client = self._client
        if not write.stubborn:
            client = replace(client, retry=replace(client.retry, tries=1))
        try:
            return client.write(write.method, write.path, write.kind, write.body)
        except RackyardError as error:
            return error


def _lasting(error: RackyardError, write: Write) -> bool:
    """Whether the server is in trouble for longer than the ordinary client's patience. What it says of a write that is
    not stubborn is about that one.
    """
    return not isinstance(error, ApiError) or (write.stubborn and error.status.code in TRANSIENT)


def refusal(write: Write, server: str, code: int, text: bytes) -> ApiError:
    """What the API server's refusal says."""
    try:
        status = msgspec.json.decode(text, type=Status)
    except msgspec.MsgspecError:
        status = Status(code)
    return ApiError(f"{write.method} {write.path}: {code}", status, where=server)
