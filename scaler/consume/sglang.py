"""SGLang: ``POST /set_internal_state`` changes the scheduler's cap at its next step, without a restart.

Read in the sources of 0.4.6, 0.4.9, 0.5.2, 0.5.9 and 0.5.23 (``managers/scheduler.py``, later
``managers/scheduler_components/internal_state.py``, and ``entrypoints/http_server.py``). Run for real: 0.5.23.

- The cap is ``pp_max_micro_batch_size``, ``max_micro_batch_size`` until 0.5.2: which one is asked of the engine. It
  bounds one pipeline stage's micro batch of one data-parallel rank, and is used for admission at any pipeline depth
  (``get_num_allocatable_reqs``). So a replica runs cap × pipeline stages × data-parallel ranks.
- What it accepts is 1 .. ``max_running_requests // pp_size``, where ``max_running_requests`` is the rank's own,
  reported as ``effective_max_running_requests_per_dp`` (in 0.5.9 and later).
- The answer proves nothing: up to 0.5.9 it says ``updated: true`` for a refused value as well, and in 0.4.6 the
  request fails with HTTP 500 after it took effect. What counts is read back, from ``internal_states`` in
  ``/server_info`` (``/get_server_info`` before), which the schedulers themselves answer, one per rank.
- Lowering ends nobody: running requests finish, and none is admitted until fewer run. After raising, more are admitted
  when the next running request ends: until then a flag keeps the batch closed.
- Auth (``utils/auth.py``): with an admin key the change needs that key, the API key is then refused; reading needs the
  API key where one is set, and nothing where only an admin key is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from scaler.consume.engine import EngineBatch, EngineError
from scaler.consume.engine_http import EngineHttp, NoSuchRouteError

CAPS: Final = ("pp_max_micro_batch_size", "max_micro_batch_size")
INFO_ROUTES: Final = ("/server_info", "/get_server_info")


class SGLang:
    """One SGLang server. ``api_key`` and ``admin_key`` are its ``--api-key`` and ``--admin-api-key``; ``own_batch`` its
    own setting, for versions that do not tell it.
    """

    engine: Final = "sglang"
    reloads: Final = False

    def __init__(
        self,
        http: EngineHttp,
        *,
        api_key: str | None = None,
        admin_key: str | None = None,
        own_batch: int | None = None,
    ) -> None:
        self._http = http
        self._own_batch = own_batch
        self._api_key = api_key
        self._admin_key = admin_key
        self._routes = list(INFO_ROUTES)

    async def read(self) -> EngineBatch:
        """From all ranks together."""
        info = await self._info()
        ranks, cap, stages = _ranks(info), _cap(info), _stages(info)
        sizes = [_whole(rank.get(cap)) for rank in ranks]
        limits = [_whole(rank.get("effective_max_running_requests_per_dp")) for rank in ranks]
        uppers = [None if limit is None else max(limit // stages, 1) for limit in limits]
        launched = _whole(info.get(cap))  # of the process that was launched: what was set later is not in it
        owns = [launched or upper for upper in uppers]
        step = len(ranks) * stages
        size, own, most = _sum(sizes, stages), _sum(owns, stages) or self._own_batch, _sum(uppers, stages)
        return EngineBatch(size, own, own if most is None else most, step, follows_own=own is not None and size == own)

    async def write(self, size: int) -> None:
        """The same cap for every rank."""
        info = await self._info()
        each = max(size // (len(_ranks(info)) * _stages(info)), 1)
        await self._http.json(
            "POST", "/set_internal_state", {"server_args": {_cap(info): each}}, key=self._admin_key or self._api_key
        )

    async def restore(self) -> None:
        """Back to what it was launched with."""
        own = (await self.read()).own
        if own is None:
            raise EngineError("this version does not tell its own setting; give it as --own-batch")
        await self.write(own)

    async def _info(self) -> Mapping[str, Any]:
        while True:
            route = self._routes[0]
            try:
                info = await self._http.json("GET", route, key=self._api_key)
            except NoSuchRouteError:
                if len(self._routes) == 1:
                    raise
                self._routes.remove(route)
                continue
            if not isinstance(info, Mapping):
                raise EngineError(f"GET {route}: the answer is no JSON object; is this SGLang's port?")
            return info


def _ranks(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    ranks = info.get("internal_states")
    found = [rank for rank in ranks if isinstance(rank, Mapping)] if isinstance(ranks, list) else []
    if not found:
        raise EngineError("server info has no internal_states: SGLang before 0.4.6 cannot be asked, nor set")
    return found


def _cap(info: Mapping[str, Any]) -> str:
    for cap in CAPS:
        if cap in _ranks(info)[0]:
            return cap
    raise EngineError(f"server info has none of {', '.join(CAPS)}: this version of SGLang is not known")


def _stages(info: Mapping[str, Any]) -> int:
    return _whole(info.get("pp_size")) or 1


def _whole(value: object) -> int | None:
    """A count of at least 1; None for everything else, which stands for "not told"."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 1 <= value < math.inf:
        return None
    return int(value)


def _sum(each: list[int | None], stages: int) -> int | None:
    known = [value for value in each if value is not None]
    return sum(known) * stages if len(known) == len(each) else None
