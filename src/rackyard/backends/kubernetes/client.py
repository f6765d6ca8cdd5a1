"""One API server: how to reach it, and requests that are tried again while it is worth it.

lightkube reads the kubeconfig and brings TLS and credentials (tokens, certificates, exec plug-ins); requests are our
own, as its typed objects hold whole nodes where we want a hundredth of one.
"""

import contextlib
import os
import random
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from rackyard.errors import RackyardError, UsageError, Where

try:
    import httpx2
    from lightkube import ConfigError, KubeConfig, SingleConfig
    from lightkube.config import client_adapter
except ModuleNotFoundError as error:  # the extra was not installed
    raise UsageError(
        f"talking to Kubernetes needs {error.name}, which is not installed", fix="pip install 'rackyard[kubernetes]'"
    ) from None

METADATA = "application/json;as={};g=meta.k8s.io;v=v1"
"""Asks for metadata only (Kubernetes API concepts, "Receiving resources as ... PartialObjectMetadata")."""

JSON = "application/json"

_JSON_BODY = {"Accept": JSON, "Content-Type": JSON}
TRANSIENT = (429, 500, 502, 503, 504)
_MOST_WAIT = 30.0
_ANOTHER = "name a kubeconfig that kubectl takes, with --kubeconfig or KUBECONFIG"
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Cause(msgspec.Struct, frozen=True):
    """One reason of a refusal: `reason` such as FieldManagerConflict, and the field it is about."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, rename="camel"):
    """Particulars of a refusal; `kind` is the resource that it is about."""

    kind: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0


class Status(msgspec.Struct, frozen=True):
    """What the API server answers when it refuses (meta/v1 Status)."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


class ApiError(RackyardError):
    """The API server refused; `status` has its words."""

    def __init__(self, what: str, status: Status, *, where: str, fix: str | None = None) -> None:
        super().__init__(what, where=where, why=status.message or status.reason or None, fix=fix)
        self.status = status


class Unreachable(RackyardError):
    """There was no answer from the API server."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how long apart a request is tried: `tries` in all, the wait drawn at random below `base` seconds,
    doubled each time (full jitter), on top of what the server asks for. Tests pass their own `sleep` and `draw`.
    """

    tries: int = 5
    base: float = 0.5
    sleep: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = random.random

    def wait(self, tried: int, asked: float) -> float:
        """Seconds to wait after the try numbered `tried`, from 1; `asked` is what the server wants."""
        backoff = min(_MOST_WAIT, self.base * 2.0 ** (tried - 1)) * self.draw()
        return min(_MOST_WAIT, asked + backoff)


class Stream:
    """The body of an answer as it comes, in pieces of any size. Raises what `Client.stream` says."""

    def __init__(self, answer: "httpx2.Response") -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        return self._answer.iter_bytes()

    def cut(self) -> None:
        """End it from another thread: the reader finds the connection closed."""
        carrier = self._answer.extensions.get("network_stream")
        found = carrier.get_extra_info("socket") if carrier is not None else None
        if isinstance(found, socket.socket):
            with contextlib.suppress(OSError):
                # Past the shutdown of ssl.SSLSocket, which would take the session away from under the reader.
                socket.socket.shutdown(found, socket.SHUT_RDWR)


@dataclass(slots=True)
class Client:
    """A connection to one API server; use it from several threads at will, and close it after."""

    http: "httpx2.Client"
    server: str
    retry: Retry = field(default_factory=Retry)
    tls: ssl.SSLContext | bool = True
    """For connections beside `http`: how the server is checked, and our certificate."""

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def get(self, path: str, params: Mapping[str, str], accept: str) -> bytes:
        """The body of a GET. ApiError or Unreachable when it fails for good."""
        return self._send("GET", path, params, {"Accept": accept}, None)

    def patch(self, path: str, params: Mapping[str, str], accept: str, kind: str, body: Any) -> bytes:
        """The body that a PATCH of media type `kind` answers with. Errors as above."""
        content = msgspec.json.encode(body)
        return self._send("PATCH", path, params, {"Accept": accept, "Content-Type": kind}, content)

    def post(self, path: str, params: Mapping[str, str], body: Any) -> bytes:
        """The body that a POST answers with. Errors as above; a POST whose answer was lost is sent again, so that 409
        may mean that the first one did its work.
        """
        return self._send("POST", path, params, _JSON_BODY, msgspec.json.encode(body))

    def put(self, path: str, params: Mapping[str, str], body: Any) -> bytes:
        """The body that a PUT answers with. Errors as above."""
        return self._send("PUT", path, params, _JSON_BODY, msgspec.json.encode(body))

    def delete(self, path: str, params: Mapping[str, str], body: Any = None) -> bytes:
        """The body that a DELETE answers with; `body` is a DeleteOptions. Errors as above: 404 when it is gone."""
        return self._send("DELETE", path, params, _JSON_BODY, None if body is None else msgspec.json.encode(body))

    def write(self, method: str, path: str, kind: str, body: Any) -> bytes:
        """The body that a request of any method with a body of media type `kind` answers with. Errors as above."""
        return self._send(method, path, {}, {"Accept": JSON, "Content-Type": kind}, msgspec.json.encode(body))

    def authorization(self) -> dict[str, str]:
        """The headers that carry our credentials, for connections beside `http`. UsageError when there are none."""
        if self.http.auth is None:
            return {}
        request = self.http.build_request("GET", self.server)
        try:
            told = next(self.http.auth.sync_auth_flow(request)).headers
        except (ConfigError, OSError, ValueError, KeyError, TypeError) as error:
            raise self._no_credentials(error) from None
        return {"Authorization": told["Authorization"]} if "Authorization" in told else {}

    @contextlib.contextmanager
    def stream(self, path: str, params: Mapping[str, str], accept: str, patience: float) -> "Iterator[Stream]":
        """A GET whose body goes on, for watches; Unreachable after `patience` seconds of silence. Not tried again."""
        timeout = httpx2.Timeout(30, read=patience)
        headers = {"Accept": accept}
        try:
            request = self.http.build_request("GET", path, params=dict(params), headers=headers, timeout=timeout)
            answer = self.http.send(request, stream=True)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from None
        except (ConfigError, OSError, ValueError, KeyError, TypeError) as error:
            raise self._no_credentials(error) from None
        try:
            if not answer.is_success:
                answer.read()
                raise _refusal("GET", path, self.server, _status(answer))
            yield Stream(answer)
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise self._unreachable(error) from None
        finally:
            answer.close()

    def _send(
        self, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, str], content: bytes | None
    ) -> bytes:
        tried = 0
        while True:
            tried += 1
            try:
                answer = self.http.request(method, path, params=dict(params), headers=dict(headers), content=content)
            except httpx2.TransportError as error:
                if tried >= self.retry.tries:
                    raise self._unreachable(error) from None
                self.retry.sleep(self.retry.wait(tried, 0))
                continue
            except (ConfigError, OSError, ValueError, KeyError, TypeError) as error:
                raise self._no_credentials(error) from None
            if answer.is_success:
                return answer.content
            status = _status(answer)
            if answer.status_code not in TRANSIENT or tried >= self.retry.tries:
                raise _refusal(method, path, self.server, status)
            self.retry.sleep(self.retry.wait(tried, _retry_after(answer, status)))

    def _no_credentials(self, error: Exception) -> UsageError:
        # The token file or exec plug-in of the kubeconfig is used only now, and what it gives is not checked.
        why = f"{type(error).__name__}: {error}"
        fix = "log in again, or name a context of another user with --context"
        return UsageError("no credentials for the cluster", where=self.server, why=why, fix=fix)

    def _unreachable(self, error: Exception) -> Unreachable:
        why = str(error) or type(error).__name__
        fix = "check that the server of the kubeconfig is right and can be reached from here"
        return Unreachable("the API server does not answer", where=self.server, why=why, fix=fix)


def connect(kubeconfig: str | None = None, context: str | None = None, retry: Retry | None = None) -> Client:
    """A client for the cluster of `kubeconfig` and `context` (else the current one). Without a kubeconfig it looks
    where kubectl does: KUBECONFIG, ~/.kube/config, the pod that we run in. UsageError when none is there or usable.
    """
    config, origin = _config(kubeconfig, context)
    if config.user is None:
        fix = "give it one (kubectl config set-context --user), or name another one with --context"
        raise UsageError(f"context {config.context_name} names no user", where=origin, fix=fix)
    parameters = client_adapter.ConnectionParams(timeout=httpx2.Timeout(30))
    with _told(origin):
        http = client_adapter.Client(config, parameters)
        tls = client_adapter.verify_cluster(config.cluster, config.user, config.abs_file)
    return Client(http, config.cluster.server, retry or Retry(), tls)


def node_path(name: str) -> str:
    """The path of a node."""
    return f"/api/v1/nodes/{quote(name, safe='')}"


def _config(kubeconfig: str | None, context: str | None) -> "tuple[SingleConfig, str]":
    path, origin = kubeconfig, kubeconfig or ""
    if path is None and (path := os.environ.get("KUBECONFIG") or None):
        origin = f"KUBECONFIG={path}"
        if os.pathsep in path:
            fix = "name one with --kubeconfig, or merge them: kubectl config view --flatten --minify"
            raise UsageError("KUBECONFIG names several files", where=origin, fix=fix)
    if path is None and (home := Path("~/.kube/config").expanduser()).is_file():
        path = origin = str(home)
    if path is None and not _SERVICE_ACCOUNT.joinpath("token").is_file():
        fix = "give --kubeconfig, or set KUBECONFIG"
        raise UsageError("no cluster to talk to: no kubeconfig, and this is no pod with a service account", fix=fix)
    origin = origin or str(_SERVICE_ACCOUNT)
    with _told(origin):
        found = KubeConfig.from_service_account(_SERVICE_ACCOUNT) if path is None else _from_file(path)
        chosen = found.get(context)
    if chosen is None:
        raise UsageError("no current context", where=origin, fix="give --context")
    return chosen, origin


def _from_file(path: str) -> KubeConfig:
    from rackyard.fabric.yamlread import MAX_CHARS  # as large as any YAML we read

    text = Path(path).expanduser().read_text(encoding="utf-8")
    if len(text) > MAX_CHARS:
        raise ConfigError(f"over {MAX_CHARS} characters long")
    try:
        found = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark
        where = Where(path, mark.line + 1, mark.column + 1) if mark else Where(path)
        raise UsageError("the kubeconfig is not YAML", where=where, why=error.problem, fix=_ANOTHER) from None
    return KubeConfig.from_dict(found, fname=path)


@contextlib.contextmanager
def _told(origin: str) -> Iterator[None]:
    """What lightkube raises for a broken kubeconfig is of many kinds: it reads the document as it comes."""
    why, fix = "", _ANOTHER
    try:
        yield
        return
    except ConfigError as error:
        why = str(error)
        if why.startswith("Context "):
            fix = "name one that it has with --context: kubectl config get-contexts -o name"
    except OSError as error:
        why = error.strerror or str(error)
    except msgspec.MsgspecError as error:
        why = str(error)
    except KeyError as error:
        why = f"{error} is missing, or named and not there"
    except (TypeError, AttributeError, ValueError):
        why = "it has not the form of a kubeconfig"
    raise UsageError("the kubeconfig can't be used", where=origin, why=why, fix=fix)


def _status(answer: "httpx2.Response") -> Status:
    """The Status of a refusal; a proxy in between may answer with anything else."""
    try:
        found = msgspec.json.decode(answer.content, type=Status)
    except msgspec.MsgspecError:
        found = Status()
    return found if found.code else Status(answer.status_code, found.reason, found.message or answer.reason_phrase)


def _retry_after(answer: "httpx2.Response", status: Status) -> float:
    said = answer.headers.get("Retry-After", "")
    if said.isascii() and said.isdigit():
        return min(float(said), _MOST_WAIT)
    return float(status.details.retry_after_seconds) if status.details else 0.0


_FIX = {
    401: "the credentials of the kubeconfig are not accepted: renew them",
    403: "grant {verb} on this to the user (a Role or ClusterRole)",
}

_VERB = {"GET": "get, list and watch", "POST": "create", "PUT": "update"}


def _refusal(method: str, path: str, server: str, status: Status) -> ApiError:
    fix = _FIX.get(status.code, "").format(verb=_VERB.get(method, method.lower()))
    return ApiError(f"{method} {path}: {status.code}", status, where=server, fix=fix or None)
