"""A stand-in for vLLM's sleep mode: the routes of 0.32.0's ``entrypoints/serve/dev/sleep/api_router.py`` and
``rpc/api_router.py``, with the states behind them (``v1/engine/core.py``, ``v1/executor/abstract.py``).

It holds what the CPU build cannot show: memory that is freed, weights that are gone until they are read again, and an
engine that computes on them nevertheless (``computed_on_nothing``).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from aiohttp import web

TAGS = ("weights", "kv_cache")


@dataclass
class SleepingVllm:
    """One server. ``dev_mode``: whether it has the routes; ``wake_seconds`` passes in each wake; ``fails``: how many
    wakes fail; ``deaf``: takes requests to sleep and stays awake; ``stats``: whether its page tells of its state.
    """

    version: str = "0.32.0"
    dev_mode: bool = True
    wake_seconds: float = 0.0
    fails: int = 0
    deaf: bool = False
    stats: bool = True
    running: int = 0
    waiting: int = 0
    level: int = 0
    sleeping: set[str] = field(default_factory=set)
    paused: bool = False
    weights: bool = True
    gauges: tuple[int, int] = (0, 0)
    asked: list[str] = field(default_factory=list)
    computed_on_nothing: bool = False

    @property
    def asleep(self) -> bool:
        return self.paused or bool(self.sleeping)

    def arrives(self) -> None:
        """A request comes: computed at once, or queued where no gauge shows it."""
        if self.asleep:
            self.waiting += 1
        else:
            self.computed_on_nothing |= not self.weights

    def routes(self) -> list[web.RouteDef]:
        always = [web.get("/metrics", self.metrics), web.get("/version", self.show_version)]
        dev = [
            web.post("/sleep", self.sleep),
            web.post("/wake_up", self.wake),
            web.get("/is_sleeping", self.is_sleeping),
            web.post("/collective_rpc", self.rpc),
        ]
        return always + (dev if self.dev_mode else [])

    async def metrics(self, _request: web.Request) -> web.Response:
        if not self.asleep:
            self.gauges = (self.running, self.waiting)  # written by the scheduler's step, which a sleep stops
        state = {
            "awake": not self.asleep,
            "weights_offloaded": self.asleep and self.level == 1,
            "discard_all": self.asleep and self.level == 2,
        }
        labels = 'engine="0",model_name="tiny"'
        lines = [f'vllm:engine_sleep_state{{{labels},sleep_state="{word}"}} {on:.1f}' for word, on in state.items()]
        lines += [
            f"vllm:num_requests_running{{{labels}}} {self.gauges[0]:.1f}",
            f"vllm:num_requests_waiting{{{labels}}} {self.gauges[1]:.1f}",
            f'vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} {self.gauges[1]:.1f}',
            f"vllm:kv_cache_usage_perc{{{labels}}} 0.0",
            f'vllm:request_success_total{{{labels},finished_reason="stop"}} 5.0',
        ]
        return web.Response(text="".join(f"{line}\n" for line in lines) if self.stats else "")

    async def show_version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": self.version})

    async def is_sleeping(self, _request: web.Request) -> web.Response:
        return web.json_response({"is_sleeping": self.asleep})

    async def sleep(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        level = int(request.query.get("level", "1"))
        if not self.deaf:
            self.paused = True
            self.level = level
            if level:
                self.sleeping |= set(TAGS)
                self.weights = level != 2
        return web.json_response({"status": "sleeping", "level": level})

    async def wake(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        await asyncio.sleep(self.wake_seconds)
        if self.fails:
            self.fails -= 1
            return web.json_response({"error": {"message": "CUDA Error: out of memory"}}, status=500)
        tags = request.query.getall("tags", [])
        self.sleeping -= set(tags or TAGS)
        if not self.sleeping:
            self.paused = False
            self.computed_on_nothing |= bool(self.waiting) and not self.weights
            self.waiting = 0
        return web.json_response({"status": "sleeping" if self.sleeping else "awake", "tags": tags or None})

    async def rpc(self, request: web.Request) -> web.Response:
        method = (await request.json())["method"]
        self.asked.append(method)
        self.weights = self.weights or method == "reload_weights"
        return web.json_response({"results": [None]})
