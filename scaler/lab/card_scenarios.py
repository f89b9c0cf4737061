"""What is played on one card: models by turns, and models with idle nights, each as it is and as it was before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from scaler.lab.card import Outcome, Tenant, Ways, play_card
from scaler.lab.hardware import HARDWARE, Hardware
from scaler.lab.promise import Promise
from scaler.lab.traces import Rate, poisson, read_client_rate
from scaler.lab.wave import Lengths
from scaler.policy.model import Batch, GpuGroup, Idle, Objectives, Policy, Push, ReplicaRange
from scaler.value import frozen

#: The card: Llama-3.1-8B on one H100, its KV cache divided among the models.
HARDWARE_NAME = "llama-3.1-8b-h100"
DAY_SECONDS = 86_400.0
#: The most requests per second of a model drawn from ServeGen, whose clients are larger than a part of one card.
PEAK_RATE = 1.5
PROMISE = Promise(ttft_seconds=1.0, tpot_seconds=0.05)


@frozen
class CardScenario:
    """``rates`` by model, or the names of the ``clients`` whose rates a ServeGen ``file`` has; ``ways``: what is
    compared, by name, with how idle models go down.
    """

    name: str
    summary: str
    seconds: float
    own_batch: int
    rates: tuple[Rate, ...]
    ways: tuple[tuple[str, Ways, Idle], ...]
    file: str | None = None
    clients: tuple[str, ...] = ()

    def play(self, seed: int, data: Path | None = None) -> dict[str, list[Outcome]]:
        """Every way on the same requests. ``data``: the folder that ``file`` lies in. Raises TraceError, OSError."""
        rates = self.rates
        if self.file is not None and data is not None:
            rates = tuple(_scaled(read_client_rate(data / self.file, each), self.seconds) for each in self.clients)
        return {
            name: play_card(self.tenants(rates, seed, idle), self.seconds, PROMISE, ways)
            for name, ways, idle in self.ways
        }

    def tenants(self, rates: tuple[Rate, ...], seed: int, idle: Idle) -> list[Tenant]:
        """The models, with equal parts of the card and requests drawn by ``seed``."""
        share = 1.0 / len(rates)
        whole = HARDWARE[HARDWARE_NAME]
        own = Hardware(whole.cost, int(whole.kv_tokens * share))
        policy = Policy(
            push=Push(enabled=True),
            replicas=ReplicaRange(max=1),
            batch=Batch(min=2, max=128),
            objectives=Objectives(ttft_seconds=PROMISE.ttft_seconds, tpot_seconds=PROMISE.tpot_seconds),
            gpu_group=GpuGroup(name="gpu-0", share_ratio=share, batch=self.own_batch),
            idle=idle,
        )
        requests = [
            poisson(rate, Lengths(), seed=seed * 100 + number, seconds=self.seconds)
            for number, rate in enumerate(rates)
        ]
        return [Tenant(f"model-{number}", policy, each, own) for number, each in enumerate(requests)]


def _turns(models: int, high: float, low: float, each_seconds: float) -> tuple[Rate, ...]:
    """Each in turn at ``high``, the others at nothing; then all at ``low``."""

    def rate_of(model: int) -> Rate:
        def rate(at: float) -> float:
            turn = int(at // each_seconds) % (models + 1)
            return high if turn == model else low if turn == models else 0.0

        return rate

    return tuple(rate_of(model) for model in range(models))


def _nights(models: int, rate: float, day_seconds: float, night_seconds: float) -> tuple[Rate, ...]:
    """Each at ``rate`` by day and at nothing by night, their days one after another."""

    def rate_of(model: int) -> Callable[[float], float]:
        shift = model * (day_seconds + night_seconds) / models
        return lambda at: rate if (at + shift) % (day_seconds + night_seconds) < day_seconds else 0.0

    return tuple(rate_of(model) for model in range(models))


def _scaled(rate: Rate, seconds: float) -> Rate:
    """The second day of ``rate`` (the first of ServeGen's weeks is not whole), its highest window at PEAK_RATE."""
    peak = max(rate(DAY_SECONDS + at) for at in range(0, int(seconds), 600))
    return lambda at: rate(DAY_SECONDS + at) * PEAK_RATE / peak


def _steadily(_at: float) -> float:
    return 0.8


_WARM = Idle(timeout_seconds=86_400)
_LENT = (("own parts", Ways(lends=False), _WARM), ("lent", Ways(), _WARM))
_DOWN = (
    ("always awake", Ways(lends=False), _WARM),
    ("zero after 5 min", Ways(lends=False), Idle(timeout_seconds=300)),
    ("asleep after 5 min", Ways(lends=False), Idle(timeout_seconds=86_400, sleep_after_seconds=300)),
    ("asleep, then zero after 30 min", Ways(lends=False), Idle(timeout_seconds=1800, sleep_after_seconds=300)),
)
CARD_SCENARIOS = {
    each.name: each
    for each in (
        CardScenario(
            "two-by-turns", "two models, 14/s by turns, 4/s together", 3600, 32, _turns(2, 14, 4, 300), _LENT
        ),
        CardScenario(
            "five-by-turns", "five models, 8/s by turns, 0.8/s together", 3600, 12, _turns(5, 8, 0.8, 300), _LENT
        ),
        CardScenario(
            "five-all-day", "five models, 0.8/s each without a pause", 1800, 12, (_steadily,) * 5, _LENT
        ),
        CardScenario(
            "night-idle", "three models, 3/s for 20 min, then an hour of nothing", 14_400, 32,
            _nights(3, 3, 1200, 3600), _DOWN,
        ),
        CardScenario(
            "servegen-nights", "three clients of ServeGen's m-small, a day", DAY_SECONDS, 32, (), _DOWN,
            file="servegen_m-small_clients_10min.csv.gz", clients=("17", "1", "13"),
        ),
    )
}  # fmt: skip
