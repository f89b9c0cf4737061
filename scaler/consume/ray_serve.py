"""Ray Serve: a ``@serve.batch`` function follows ``user_config`` through the deployment's own ``reconfigure``.

Needs of the deployment (https://docs.ray.io/en/latest/serve/advanced-guides/dyn-req-batch.html)::

    def reconfigure(self, user_config):
        self.batched.set_max_batch_size(user_config["max_batch_size"])

Read in Ray 2.60 (``serve/schema.py``, ``serve/_private/controller.py``, ``dashboard/modules/serve/serve_head.py``) and
seen on a real one: changing nothing but ``user_config`` calls ``reconfigure`` in every running replica within 0.4 s; no
replica is restarted (``DeploymentVersion.requires_actor_restart``). The ways it goes wrong:

- ``PUT /api/serve/applications/`` declares *everything*: an application left out is deleted, an unset
  ``target_capacity`` is reset. So all that was deployed declaratively is read, one value changed, and all of it written
  back. There is no version to compare, so somebody else's deployment between the two requests would be undone: nothing
  is written while any application is not ``RUNNING``, and a dashboard should have one agent only.
- An application deployed by ``serve.run`` has no config that could be written back.
- A dashboard may ask for a token (``RAY_AUTH_MODE=token``, the default where the cluster's user has one): ``api_key``.
- It may mask secrets of ``runtime_env`` in what it tells. Masked values are never written back.
- Serve believes any value that ``reconfigure`` does not refuse; read back is what Serve has given to every replica
  (deployment ``HEALTHY``, application ``RUNNING``), not what the batcher made of it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from scaler.consume.engine import EngineBatch, EngineError
from scaler.consume.engine_http import EngineHttp

ROUTE: Final = "/api/serve/applications/"
#: What the dashboard writes in place of a secret (``dashboard/runtime_env_redaction.py``).
MASK: Final = "<redacted>"
#: What is carried over beside the applications.
_KEPT: Final = ("proxy_location", "http_options", "grpc_options", "target_capacity")


class RayServe:
    """One deployment of an application on a Ray cluster; ``http`` leads to its dashboard (port 8265), which may want
    ``api_key``.

    ``key``: the entry of ``user_config`` that is the batch. ``own_batch``: what the deployment has without us. It can't
    be asked for: after a restart of ours the cluster shows what we set.
    """

    engine: Final = "rayserve"
    reloads: Final = False

    def __init__(
        self,
        http: EngineHttp,
        application: str,
        deployment: str,
        *,
        own_batch: int,
        key: str = "max_batch_size",
        api_key: str | None = None,
    ) -> None:
        self._http = http
        self._api_key = api_key
        self._application = application
        self._deployment = deployment
        self._own_batch = own_batch
        self._key = key

    async def read(self) -> EngineBatch:
        """The value that every running replica was given; none while they are being given another."""
        application = self._found(await self._told())
        deployment = application.get("deployments", {}).get(self._deployment)
        if not isinstance(deployment, Mapping):
            known = ", ".join(sorted(application.get("deployments", {}))) or "none"
            raise EngineError(
                f"application {self._application!r} has no deployment {self._deployment!r}; its deployments: {known}"
            )
        settled = application.get("status") == "RUNNING" and deployment.get("status") == "HEALTHY"
        config = deployment.get("deployment_config", {}).get("user_config")
        value = config.get(self._key) if isinstance(config, Mapping) else None
        size = value if type(value) is int and value >= 1 else self._own_batch if value is None else None
        return EngineBatch(
            size=size if settled else None,
            own=self._own_batch,
            most=self._own_batch,
            follows_own=settled and size == self._own_batch,
        )

    async def write(self, size: int) -> None:
        """Declare all applications again, with this one value changed."""
        told = await self._told()
        self._found(told)
        applications = []
        for name, details in told["applications"].items():
            if details.get("status") != "RUNNING":
                raise EngineError(f"application {name!r} is {details.get('status')}: nothing is changed meanwhile")
            if details.get("deployed_app_config") is not None:
                applications.append(copy.deepcopy(details["deployed_app_config"]))
        for application in applications:
            if application.get("name") == self._application:
                _set(application, self._deployment, self._key, size)
        if _masked(applications):
            raise EngineError("the dashboard masks secrets of runtime_env: writing its answer back would lose them")
        kept = {name: told[name] for name in _KEPT if told.get(name) is not None}
        declared = {**kept, "applications": applications}
        await self._http.text("PUT", ROUTE, declared, key=self._api_key, timeout_seconds=30.0)

    async def restore(self) -> None:
        """Back to ``own_batch``."""
        await self.write(self._own_batch)

    async def _told(self) -> Mapping[str, Any]:
        told = await self._http.json("GET", ROUTE, key=self._api_key)
        if not isinstance(told, Mapping) or not isinstance(told.get("applications"), Mapping):
            raise EngineError(f"GET {ROUTE}: no applications in the answer; is this Ray's dashboard (port 8265)?")
        return told

    def _found(self, told: Mapping[str, Any]) -> Mapping[str, Any]:
        application = told["applications"].get(self._application)
        if not isinstance(application, Mapping):
            known = ", ".join(sorted(told["applications"])) or "none"
            raise EngineError(f"no application {self._application!r}; there are: {known}")
        if application.get("deployed_app_config") is None:
            raise EngineError(
                f"application {self._application!r} was deployed by code, and cannot be declared again; deploy it from "
                "a config (serve deploy, RayService)"
            )
        return application


def _set(application: dict[str, Any], deployment: str, key: str, size: int) -> None:
    """Write one entry of ``user_config``; the deployment is added where the config leaves it to the code."""
    deployments = application.setdefault("deployments", [])
    for each in deployments:
        if each.get("name") == deployment:
            each["user_config"] = {**(each.get("user_config") or {}), key: size}
            return
    deployments.append({"name": deployment, "user_config": {key: size}})


def _masked(value: object) -> bool:
    if isinstance(value, Mapping):
        return any(map(_masked, value.values()))
    if isinstance(value, list):
        return any(map(_masked, value))
    return value == MASK
