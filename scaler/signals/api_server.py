"""One Kubernetes API server: plain JSON in and out, and every way it can fail as one sentence.

The client library (the ``kubernetes`` extra) is used for what is hard: finding the cluster, its certificates, and
tokens that expire. Its object models are not: they cost more to build than everything that is read from them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

Query = Sequence[tuple[str, str]]


class ApiError(Exception):
    """No usable answer; the text is the reason, for a person. ``forbidden``: the server answers, but not to us."""

    def __init__(self, reason: str, *, forbidden: bool = False) -> None:
        super().__init__(reason)
        self.forbidden = forbidden


class ExpiredError(ApiError):
    """The server no longer remembers the version a list or watch went on from: begin anew with a whole list."""


class ApiServer:
    """Reads from one API server, with the rights of whoever ``client`` is."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def get(self, path: str, query: Query = (), *, timeout: float) -> dict[str, Any]:
        """The JSON object at ``path``. Raises :class:`ApiError`."""
        async with aclosing(self._lines(path, query, aiohttp.ClientTimeout(total=timeout), whole=True)) as bodies:
            async for body in bodies:
                return body
        raise ApiError("the cluster gave an empty answer")

    async def watch(self, path: str, query: Query, *, silence: float) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a watch until the server ends it. Raises :class:`ApiError`, also after ``silence`` seconds
        without an event: a connection may be dead without anybody being told.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=silence, sock_read=silence)
        async with aclosing(self._lines(path, query, limits, whole=False)) as events:
            async for event in events:
                body = event.get("object")
                if not isinstance(body, dict):
                    raise ApiError("the cluster sent a watch event without an object")
                if event.get("type") == "ERROR":
                    raise _refused(int(body.get("code") or 0), path, str(body.get("message") or ""))
                yield event

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()

    async def _lines(
        self, path: str, query: Query, limits: aiohttp.ClientTimeout, *, whole: bool
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The answer's JSON objects: the ``whole`` body as one, or one a line."""
        try:
            response = await self._client.call_api(
                path,
                "GET",
                query_params=list(query),
                header_params={"Accept": "application/json"},
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=limits,
            )
            async with response:
                if response.status != 200:
                    raise _refused(response.status, path, _message(await response.text()))
                if whole:
                    yield _object(await response.read())
                    return
                async for line in response.content:
                    yield _object(line)
        except TimeoutError as error:
            raise ApiError("the cluster did not answer in time") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ApiError(f"the cluster cannot be reached: {error}") from error
        except ValueError as error:
            raise ApiError(f"the cluster's answer cannot be read: {error}") from error


async def connect() -> ApiServer:
    """The cluster we run in, else the one of the user's kubeconfig. Raises :class:`ApiError` where there is none."""
    try:
        from kubernetes_asyncio import client, config
    except ImportError as error:
        raise ApiError("the kubernetes extra is not installed: pip install 'loadtide[kubernetes]'") from error
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException:
        try:
            await config.load_kube_config(client_configuration=configuration, persist_config=False)
        except (config.ConfigException, OSError) as error:
            raise ApiError(f"there is no cluster: not in a pod, and no kubeconfig ({error})") from error
    # Clusters of EKS have an authority without key identifiers: https://github.com/kubernetes-client/python/issues/2394
    configuration.disable_strict_ssl_verification = True
    configuration.connection_pool_maxsize = 0  # no limit: a watch keeps its connection, and none may wait for another
    return ApiServer(client.ApiClient(configuration))


def _refused(status: int, path: str, message: str) -> ApiError:
    what = path.partition("/namespaces/")[2].partition("/")[2] or path
    if status == 410:
        return ExpiredError("the cluster no longer knows the version to go on from")
    if status in (401, 403):
        return ApiError(f"the cluster forbids to read {what} (HTTP {status})", forbidden=True)
    return ApiError(f"the cluster refused {what}: HTTP {status}{f', {message}' if message else ''}")


def _message(text: str) -> str:
    try:
        body = json.loads(text)
    except ValueError:
        return ""
    return str(body.get("message", "")) if isinstance(body, Mapping) else ""


def _object(text: bytes) -> dict[str, Any]:
    body = json.loads(text)
    if not isinstance(body, dict):
        raise ValueError("not a JSON object")
    return body
