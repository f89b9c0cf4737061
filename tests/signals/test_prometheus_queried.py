"""Queries of the operator's own: one number for the workload, or the reason why there is none."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from scaler.policy.model import Policy
from scaler.policy.prometheus import Prometheus, PrometheusServer
from scaler.signals.model import Known, Signal, Stale, Unknown
from scaler.signals.observation import Observation, Queried
from scaler.signals.prometheus.answer import Answer, Row
from scaler.signals.prometheus.api import Api
from scaler.signals.prometheus.queried import ask_all, judge
from scaler.signals.window import History, fold
from tests.signals.fake_prometheus import FakePrometheus, serving, vector


def judged(
    *values: float, partial: str = "", before: Known[float] | None = None, now: float = 100.0, **prometheus: str
) -> Queried:
    answer = Answer([Row({"pod": str(number)}, value) for number, value in enumerate(values)], 0.0, partial)
    return judge(answer, Prometheus.model_validate(prometheus), before, now, hold_seconds=120.0)


def test_g5_02_a_one_number_is_the_signal() -> None:
    assert judged(40) == Queried(Known(40.0, 100.0))


def test_g5_02_c_several_series_are_refused_with_their_count_unless_the_operator_says_what_they_make() -> None:
    refused = judged(8, 8, 8, 8, 8)
    assert isinstance(refused.signal, Unknown)
    assert refused.reason == "the query gives 5 series; write sum(...) around it, or set prometheus.aggregation"
    assert judged(8, 8, 8, 8, 8, aggregation="sum").signal == Known(40.0, 100.0)
    assert judged(8, 9, 7, aggregation="max").signal == Known(9.0, 100.0)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ((), "the query gives no series"),
        ((float("nan"),), "the query gives nan, which is no quantity"),
        ((float("inf"),), "the query gives inf, which is no quantity"),
        ((-1.0,), "the query gives -1, which is no quantity"),
        ((1e300,), "the query gives 1e+300, which is no quantity"),
    ],
)
def test_what_is_no_quantity_is_held_then_unknown_and_never_zero(values: tuple[float, ...], reason: str) -> None:
    assert judged(*values) == Queried(Unknown(reason), reason)
    assert judged(*values, before=Known(42.0, 0.0), now=120.0) == Queried(Stale(42.0, 0.0), reason)
    assert judged(*values, before=Known(42.0, 0.0), now=121.0) == Queried(Unknown(reason), reason)


@pytest.mark.parametrize("aggregation", ["sum", "max"])
@pytest.mark.parametrize(
    ("values", "wrong"), [((3.0, float("nan")), "nan"), ((float("nan"), 3.0), "nan"), ((8.0, -5.0), "-5")]
)
def test_one_series_that_is_no_quantity_leaves_none_of_the_others(
    aggregation: str, values: tuple[float, ...], wrong: str
) -> None:
    told = judged(*values, aggregation=aggregation)
    assert isinstance(told.signal, Unknown)
    assert told.reason == f"the query gives {wrong}, which is no quantity"


def test_empty_is_zero_only_if_the_operator_said_so_and_the_answer_is_whole() -> None:
    assert judged(empty_means="zero").signal == Known(0.0, 100.0)
    assert isinstance(judged(empty_means="zero", partial="half").signal, Unknown)


def test_partial_data_may_raise_and_may_not_lower() -> None:
    before = Known(42.0, 90.0)
    assert judged(3, partial="half", before=before) == Queried(Stale(42.0, 90.0, 3.0), "partial data: half")
    assert judged(50, partial="half", before=before) == Queried(Stale(50.0, 100.0, 50.0), "partial data: half")
    assert judged(3, partial="half").signal == Stale(3.0, 100.0, 3.0)


@pytest.fixture
async def fake() -> AsyncIterator[FakePrometheus]:
    async with serving(FakePrometheus()) as fake:
        yield fake


async def test_every_query_is_asked_and_one_that_fails_is_its_own_affair(fake: FakePrometheus) -> None:
    def respond(query: str) -> web.Response:
        return web.Response(status=503) if query == "bad" else web.json_response(vector(({}, 7)))

    fake.respond = respond
    group = Prometheus.model_validate({"queries": {"waiting": "good", "running": "bad"}})
    async with aiohttp.ClientSession() as session:
        api = Api(PrometheusServer(url=fake.url))
        answers = await ask_all(session, api, group, {}, 120.0, lambda: 5.0)
        assert answers == {
            "waiting": Queried(Known(7.0, 5.0)),
            "running": Queried(Unknown("HTTP 503"), "HTTP 503"),
        }
        held = await ask_all(session, api, group, {"running": Known(3.0, 1.0)}, 120.0, lambda: 5.0)
        assert held["running"] == Queried(Stale(3.0, 1.0), "HTTP 503")


def test_a_queried_signal_takes_the_place_of_the_folds() -> None:
    def signals(**queried: Signal[float]) -> object:
        observation = Observation(0.0, {}, queried={name: Queried(signal) for name, signal in queried.items()})
        return fold(History(), observation, 0.0, Policy(), interval_seconds=5.0)[1]

    told = signals(running=Known(3.0, 0.0), arrivals_per_second=Known(2.0, 0.0), waiting=Unknown("late"))
    assert told.running == Known(3.0, 0.0)  # type: ignore[attr-defined]
    assert told.waiting == Unknown("late")  # type: ignore[attr-defined]
    # A flow that is asked for is the recent one, too, where no engine tells that.
    assert told.arrivals_recent_per_second == Known(2.0, 0.0)  # type: ignore[attr-defined]
    assert isinstance(told.ready_replicas, Unknown)  # type: ignore[attr-defined]
