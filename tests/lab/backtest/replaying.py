"""A remembered past, read and replayed as a study does it, with what it was at every tick."""

from __future__ import annotations

from dataclasses import dataclass

from scaler.lab.backtest.binding import Binding
from scaler.lab.backtest.past import Measure, Tick
from scaler.lab.backtest.questions import Cluster, Questions, applied_batch
from scaler.lab.backtest.reading import Reader
from scaler.lab.backtest.replay import Replay, Seen, scrape_interval_seconds
from scaler.lab.backtest.span import Span
from scaler.policy.layers import PolicyFile
from scaler.policy.model import Policy, ScaleTarget
from scaler.signals.preset import load_preset
from scaler.signals.prometheus.plan import presence_names
from scaler.signals.prometheus.replicas import Bound
from tests.lab.backtest.remembered import BEGIN, Remembered

TARGET = ScaleTarget(kind="deployment", name="llama")
MATCH = {"namespace": "chat", "model_name": "llama"}


@dataclass
class Replayed:
    """``seen`` and ``ticks`` go together, one of each every 15 s from 15 s after the beginning."""

    seen: list[Seen]
    ticks: list[Tick]
    replay: Replay
    measure: Measure

    def at(self, seconds: float) -> tuple[Seen, Tick]:
        """The tick at this time after the beginning."""
        index = next(index for index, tick in enumerate(self.ticks) if tick.unix == BEGIN + seconds)
        return self.seen[index], self.ticks[index]


def policy_of(**metadata: str) -> Policy:
    return PolicyFile.empty().resolve("chat/llama", metadata).policy


async def replayed(
    server: Remembered, seconds: float, policy: Policy | None = None, tick_seconds: float = 15.0
) -> Replayed:
    """The first ``seconds`` of what the server remembers."""
    policy = policy or policy_of()
    preset, binding = load_preset("vllm"), Binding(MATCH, None, TARGET, "")
    reader = Reader(
        server,
        Questions(preset, binding, policy.objectives),
        Cluster("chat", None),
        TARGET,
        "pod",
        Span(BEGIN, BEGIN + seconds),
        {"applied_batch": applied_batch("chat/llama"), **policy.prometheus.queries},
        tick_seconds,
    )
    parts = [part async for part in reader.parts()]
    interval = scrape_interval_seconds(parts[0], presence_names(preset)) or tick_seconds
    group = policy.prometheus.model_copy(update={"match": MATCH, "scrape_interval_seconds": interval})
    replay = Replay(Bound("main", preset, group, None, policy.hold_seconds), TARGET, "chat", interval, BEGIN)
    measure = Measure(policy, tick_seconds)
    seen = [each for part in parts for each in replay.ticks(part, tick_seconds)]
    return Replayed(seen, [measure(each) for each in seen], replay, measure)
