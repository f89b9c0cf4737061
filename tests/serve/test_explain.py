"""A workload explained in a terminal: state, targets, reasons, what is held back, and what to do next."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from rich.console import Console

from scaler.control.budget import Bill, Room
from scaler.control.capacity_estimate import CapacityEstimate
from scaler.control.card_part import CardPart
from scaler.control.cold_start import ColdStarts
from scaler.control.model import (
    Admission,
    Code,
    LoadState,
    Memory,
    Mode,
    Override,
    Reason,
    Rung,
    Suppressed,
    Target,
    Targets,
)
from scaler.control.season import Expected, Season, Skill
from scaler.policy.model import Budget, Gpu, GpuGroup, Idle, Price, PriceWindow, Seasonal
from scaler.serve.explain import NOT_REPORTED, explain
from scaler.serve.render import workload_detail
from scaler.serve.snapshot import SourceHealth
from scaler.serve.told_document import told
from scaler.signals.activity import Activity
from scaler.signals.model import Applied, Signals, Unknown
from tests.serve.tide import POLICY, SIGNALS, START, FakeWorkloads, adjusted, snapshot


def explained(width: int = 120, current: bool = True, **changes: Any) -> str:
    """What a person reads, after the document went over the wire."""
    workload = FakeWorkloads().add("team-a/chat", snapshot(**changes))
    document = json.loads(json.dumps(workload_detail(workload, 101.0, current=current), allow_nan=False))
    out = io.StringIO()
    Console(file=out, width=width).print(explain(document))
    return out.getvalue()


def test_it_says_the_state_the_targets_and_why() -> None:
    text = explained()
    assert "team-a/chat is critical for 12 s: a critical bound is broken" in text
    assert "2 replicas wanted, 1 ready, floor 0, ceiling 4" in text
    assert "batch      32; new requests are taken" in text
    assert "P95 2.5 s to 5 s, objective 1 s: breached" in text
    assert "P95 over 40 ms, objective 50 ms: undecided" in text
    assert "- KV use 0.97 is over 0.95: batch cut to 32" in text
    assert "- wanted 6 replicas, kept 4: the ceiling" in text


def test_what_the_engines_really_run_is_told_and_who_does_not_follow() -> None:
    assert "applied    32 to 64, as 2 replicas report; its own setting: chat-1" in explained()
    one = replace(SIGNALS, applied=(Applied("chat-0", 3.0, 32, generation=7),))
    assert "applied    32, as 1 replica reports" in explained(signals=one)
    astray = tuple(Applied(f"chat-{number}", 3.0, None) for number in range(7))
    assert "chat-3, chat-4 and 2 more" in explained(signals=replace(SIGNALS, applied=astray))
    assert "applied  " not in explained(signals=replace(SIGNALS, applied=()))


def test_g2_08_it_says_what_last_showed_that_the_workload_is_wanted() -> None:
    text = explained(width=200)
    assert 'wanted     4 s ago, as finished shows at http://vllm:8000/metrics of finished_reason="stop"' in text
    assert "wanted     1 s ago, as pending shows\n" in explained(activity=Activity("pending", 100.0))
    assert "shows" not in explained(activity=None)


def test_it_says_how_long_a_replica_takes_and_whether_that_was_measured() -> None:
    seen = Memory(cold_starts=ColdStarts(warm=(60.0, 70.0, 80.0, 90.0, 140.0), new_node=(300.0,) * 5))
    told = explained(width=200, next_memory=seen, cold_start_seconds=140.0)
    assert "cold start the next replica is expected to take 2 min 20 s; measured: half within 1 min 20 s, 95 %" in told
    assert "within 2 min 20 s; half within 5 min, 95 % within 5 min on new nodes" in told
    assert "take 2 min, as declared: too few were seen" in explained(next_memory=Memory(), cold_start_seconds=120.0)


def test_it_says_what_usually_comes_or_that_nothing_shows_yet() -> None:
    assert "season     no pattern so far, 0 of 28 days known" in explained()
    believed = Memory(season=Season(period="weekly", slots_known=2016, weekly=Skill(2000.0, 1.0, 10.0, 50.0)))
    expects = explained(next_memory=believed, season=Expected(1.5, 3.0, "weekly"))
    assert "season     weekly; 3 req/s usual in 2 min, 1.5 as today goes (UTC, 21 of 28 days known)" in expects
    assert "season     weekly; nothing usual in 2 min" in explained(next_memory=believed)
    off = POLICY.model_copy(update={"season": Seasonal(enabled=False)})
    assert "season.enabled is false: not bought" in explained(next_memory=believed, policy=off)


def test_it_says_what_it_costs_and_what_the_budget_leaves() -> None:
    window = PriceWindow.model_validate({"start": "08:00", "end": "20:00", "zone": "UTC", "objective_factor": 1.2})
    priced = POLICY.model_copy(
        update={
            "gpu": Gpu(per_replica=4, hour_price=2.5, currency="EUR"),
            "price": Price(windows=(window,)),
            "budget": Budget(gpu_hours=100, per="day", at_end="cap"),
        }
    )
    bill = Bill(START, 321.0, 802.5, "2025-03-03", 61.0, 0, 36.0)
    text = explained(policy=priced, next_memory=Memory(bill=bill), budget=Room(100.0, 61.0, 3, False), width=200)
    assert "cost       20 EUR an hour for 8 GPUs, 802 EUR so far (321 GPU-hours)" in text
    assert "price      window 08:00 to 20:00 UTC is open: objectives times 1.2" in text
    assert "61 of 100 GPU-hours of 2025-03-03 spent, 36 set aside for the floor; allows up to 3 replicas now" in text
    assert "ttft       P95 2.5 s to 5 s, objective 1.2 s" in text
    assert "cost  " not in explained()
    spent = explained(policy=priced, next_memory=Memory(bill=bill), budget=Room(100.0, 100.0, 1, True), width=200)
    assert "nothing is left, and the floor stands" in spent


def test_it_says_who_sleeps_and_how_long_a_wake_takes_beside_a_cold_start() -> None:
    policy = POLICY.model_copy(update={"idle": Idle(sleep_after_seconds=300, sleep_level=2)})
    memory = Memory(asleep_seconds=720.0, woken_seconds=3.5, loaded_seconds=140.0)
    told = replace(SIGNALS, applied=(Applied("chat-0", 1.0, None, rung="asleep", wake_seconds=2.5),))
    targets = Targets(1, True, None, rung=Rung.ASLEEP)
    text = explained(200, targets=targets, ready=0, asleep=1, next_memory=memory, policy=policy, signals=told)
    assert (
        "rung       asleep for 12 min (level 2); 1 replica asleep; the last wake took 3.5 s (2.5 s in the engine)"
        in text
    )
    assert "a cold start: 2 min 20 s measured" in text
    text = explained(200, policy=policy)
    assert "rung       awake, asleep after 5 min idle; no wake measured yet, a cold start: 2 min declared" in text
    assert "  rung  " not in explained()


def test_it_says_what_it_has_of_a_shared_card_and_what_cannot_be_lent() -> None:
    policy = POLICY.model_copy(update={"gpu_group": GpuGroup(name="gpu-0", share_ratio=0.5, batch=32)})
    held = Suppressed(Code.CARD_MEMORY_KEPT, Target.BATCH, None, None)
    memory = Memory(card=CardPart(0.03, 0.5, 0.5, 2))
    text = explained(200, policy=policy, next_memory=memory, suppressed=(held,))
    assert "card       gpu-0: 3 % of its time and 50 % of its memory, 50 % its own; batch up to 2" in text
    assert "- batch kept: its KV cache was allocated at start, so another of its card that wants its memory" in text
    assert "  card  " not in explained()


def test_it_says_what_one_replica_serves_and_how_that_is_known() -> None:
    assert "capacity   32 sequences a replica, 1.6 req/s, assumed: declare capacity.sequences" in explained()
    learned = explained(capacity=CapacityEstimate(28.5, 2.25, "learned", 27.0, 30.0, 56))
    assert "capacity   28.5 sequences a replica, 2.25 req/s, learned; 27 to 30 by 56 windows" in learned
    settled = explained(capacity=CapacityEstimate(30.0, 2.0, "declared"), load_share=0.9)
    assert "capacity   30 sequences a replica, 2 req/s, declared; 36 while arrivals are settled\n" in settled
    endless = explained(capacity=CapacityEstimate(10.0, 1.0, "declared", 12.0, float("inf"), 1))
    assert "declared; at least 12 by 1 window" in endless
    assert "capacity   8 sequences a replica, saturated\n" in explained(
        capacity=CapacityEstimate(8.0, None, "saturated")
    )


def test_advice_is_told_as_advice() -> None:
    reasons = (
        Reason(Code.ADVISORY, Target.REPLICAS),
        Reason(Code.MEMORY_PRESSURE, Target.BATCH, "kv_use_ratio", 0.97, 0.95),
    )
    held = (Suppressed(Code.ADVISORY, Target.REPLICAS, 2.0, 5.0),)
    told, advised = Targets(5, True, None), Targets(2, True, 16)
    text = explained(mode=Mode.ADVISORY, targets=told, advised=advised, reasons=reasons, suppressed=held)
    assert "mode       advisory: advice only, nothing is changed; by the laws 2 replicas, batch 16" in text
    assert "5 replicas wanted" in text
    assert "- advice only, what is there stays: 5 replicas" in text
    assert "- KV use 0.97 is over 0.95: batch cut to 16" in text
    assert "- wanted 2 replicas, kept 5: advice only" in text
    assert "write mode: active to let the advice be carried out" in text
    assert "mode " not in explained()


def test_signals_come_with_status_age_and_the_reason_there_is_none() -> None:
    lines = {line.split()[0]: line for line in explained().splitlines() if line.strip()}
    assert lines["waiting"].split() == ["waiting", "stale", "7", "requests", "41", "s"]
    assert "no requests in the window" in lines["e2e_seconds"]
    assert "running" in lines


def test_what_nothing_measures_is_named_once() -> None:
    text = explained()
    assert text.count("no source gives") == 1
    assert "no source gives arrivals_recent_per_second" in text
    running = Signals().running
    assert isinstance(running, Unknown)
    assert running.reason.startswith(NOT_REPORTED)


def test_what_many_lack_for_one_reason_is_said_once() -> None:
    """A replica that is down takes all its signals with it: thirty rows of the same words hide everything else."""
    down = Unknown("0 of 1 endpoints read within 120 s; last failure: connection refused")
    names = ("arrivals_per_second", "running", "waiting", "kv_use_ratio", "ttft_seconds")
    text = explained(400, signals=replace(SIGNALS, **dict.fromkeys(names, down)))
    assert text.count("connection refused") == 1
    line = next(each for each in text.splitlines() if "connection refused" in each)
    assert line.startswith("unknown, because 0 of 1 endpoints read within 120 s")
    assert all(name in line for name in names)
    assert "pending" in text, "what is known keeps its row"
    few = explained(400, signals=replace(SIGNALS, running=down, waiting=down))
    assert few.count("connection refused") == 2, "two are shown where one looks for them"


def test_it_ends_with_what_to_do_next() -> None:
    text = explained()
    advice = text.partition("What to do next")[2]
    assert "raise replicas.max" in advice
    assert "GET /v1/workloads/team-a/chat/decisions" in advice


def test_unavailable_is_not_shown_as_a_count_that_holds() -> None:
    lost = Reason(Code.SIGNAL_LOST_TOO_LONG, Target.REPLICAS, "running", 130.0, 120.0)
    text = explained(state=LoadState.UNKNOWN, available=False, reasons=(lost,))
    assert "KEDA is told UNAVAILABLE and keeps its count (2 replicas wanted last)" in text
    assert "running lost for 2 min 10 s, too long to hold on" in text
    assert "restore the missing signal" in text


def test_a_failing_source_and_warnings_are_told() -> None:
    text = explained(
        health=(SourceHealth("scrape", "http://vllm:8000/metrics", False, "timed out after 3 s", 3.0),),
        warnings=("replicas.max is not declared",),
    )
    assert "scrape http://vllm:8000/metrics: timed out after 3 s" in text
    assert "- replicas.max is not declared" in text
    assert "make the failing sources answer" in text
    assert "loadtide probe http://vllm:8000/metrics" in text


def test_where_nothing_moved_it_does_not_say_that_nothing_needs_to_while_something_is_held_back() -> None:
    held = Suppressed(Code.KV_ROOM, Target.BATCH, 64, 32, "kv_use_ratio", 0.9, 0.85)
    assert "nothing moved: what was wanted is held back" in explained(reasons=(), suppressed=(held,))
    assert "nothing moved, and nothing needs to" in explained(reasons=(), suppressed=())


def test_a_failing_source_without_an_address_of_its_own_is_not_made_a_url() -> None:
    text = explained(health=(SourceHealth("kubernetes", "endpointslices of team-a/chat", False, "403", 0.1),))
    assert "loadtide probe URL" in text


def test_the_same_advice_is_given_once() -> None:
    held = Suppressed(Code.KV_ROOM, Target.BATCH, 64, 32, "kv_use_ratio", 0.9, 0.85)
    text = explained(width=200, suppressed=(held, replace(held, wanted=48.0)))
    assert text.count("KV cache is the limit here") == 1


def test_zero_replicas_and_an_engines_own_batch_read_well() -> None:
    text = explained(
        state=LoadState.IDLE,
        cause=None,
        targets=Targets(0, False, None, None, Admission.OPEN),
        ready=None,
        ceiling=None,
    )
    assert "0 replicas wanted (inactive), readiness not known, floor 0, ceiling none" in text
    assert "batch      the engine's own" in text


def test_a_dead_loop_is_said() -> None:
    assert "it has not evaluated this workload lately" in explained(current=False)


def test_a_workload_without_a_tick_says_so() -> None:
    workload = FakeWorkloads().add("team-b/new")
    out = io.StringIO()
    Console(file=out, width=100).print(explain(workload_detail(workload, 101.0, current=False)))
    assert "team-b/new is unknown: not evaluated yet" in out.getvalue()
    assert "ask again in a few seconds" in out.getvalue()


def test_text_from_outside_is_no_markup() -> None:
    assert "[red]x[/red]" in explained(warnings=("[red]x[/red]",))


def full_document() -> dict[str, Any]:
    """A document in which every part has something to tell."""
    policy = POLICY.model_copy(update={"gpu_group": GpuGroup(name="gpu-0", share_ratio=0.5, batch=32)})
    found = snapshot(
        policy=policy,
        mode=Mode.OVERRIDE,
        advised=Targets(2, True, 16),
        next_memory=Memory(
            card=CardPart(0.03, 0.5, 0.5, 2),
            override=Override(3, None, START + timedelta(minutes=30), "alice"),
            admission_seconds=37.0,
            state_seconds=12.0,
        ),
        capacity=CapacityEstimate(28.5, 2.25, "learned", 27.0, 30.0, 56),
        health=(SourceHealth("scrape", "http://vllm:8000/metrics", False, "timed out after 3 s", 3.0),),
    )
    workload = FakeWorkloads().add("team-a/chat", found, policy)
    workload.adjustments.append(adjusted(found))
    detail = workload_detail(workload, 101.0, current=True, sharing=[workload])
    document: dict[str, Any] = json.loads(json.dumps(detail, allow_nan=False))
    return document


def printed(document: dict[str, Any]) -> str:
    out = io.StringIO()
    Console(file=out, width=400).print(explain(document))
    return out.getvalue()


def places(value: Any) -> Iterator[tuple[str | int, ...]]:
    """Where in the document a key stands."""
    if isinstance(value, dict):
        for key, within in value.items():
            yield (key,)
            yield from ((key, *rest) for rest in places(within))
    elif isinstance(value, list):
        for index, within in enumerate(value):
            yield from ((index, *rest) for rest in places(within))


def without(document: dict[str, Any], place: tuple[str | int, ...]) -> dict[str, Any]:
    document = json.loads(json.dumps(document))
    left: Any = document
    for step in place[:-1]:
        left = left[step]
    del left[place[-1]]
    return document


def test_every_key_of_the_document_is_known_to_who_reads_it() -> None:
    found = told(full_document())
    assert (found.lacking, found.unknown) == ((), ())
    assert "Another version" not in printed(full_document())


def test_whatever_an_older_scaler_does_not_tell_the_rest_is_shown() -> None:
    document = full_document()
    everything = list(places(document))
    assert ("lasting", 0, "ends") in everything
    assert ("override", "by") in everything
    assert ("last_adjustments", 0, "changes", 0, "to") in everything
    for place in everything:
        text = printed(without(document, place))
        if len(place) == 1 and place != ("decided_at",):
            assert f"this scaler is older than this command: it does not tell {place[0]}\n" in text, place
        if place != ("decided_at",) and place[0] != "replicas":
            assert "2 replicas wanted" in text, place


def test_a_scaler_from_before_cards_sleep_and_cost_is_explained_and_called_older() -> None:
    document = full_document()
    since = ("rung", "sleep", "card", "cost", "season", "standing", "advice", "budget_spent_ratio", "workers")
    text = printed({key: value for key, value in document.items() if key not in since})
    assert "team-a/chat is critical" in text
    assert "raise replicas.max" in text, "advice of our own where the scaler gives none"
    assert "does not tell budget_spent_ratio, workers, rung, sleep, card, season, cost, advice, standing\n" in text
    assert "`loadtide explain` in the scaler's own pod is of its version" in text
    assert "card " not in text.replace("card,", "")


def test_a_newer_scaler_is_worded_by_itself_and_what_has_no_words_here_is_named() -> None:
    document = full_document()
    document |= {"state": "surging", "state_words": "load doubles", "mode": "rehearsed", "mode_words": "as played"}
    document |= {"adapters": [{"name": "lora-1"}], "advice": ["do the new thing"]}
    document["standing"].append({"about": "adapters", "sentence": "lora-1 on 2 replicas"})
    document["signals"].append({**document["signals"][0], "signal": "adapters_loaded", "status": "guessed"})
    document["reasons"].append({"code": "adapter_missing", "sentence": "an adapter is missing", "more": 1})
    document["lasting"].append({"condition": "adapter_load", "seconds": 3.0, "ends": "it is loaded"})
    text = printed(document)
    for words in (
        "is surging for 12 s: load doubles",
        "mode       rehearsed: as played",
        "adapters   lora-1 on 2 replicas",
        "adapters_loaded",
        "- an adapter is missing",
        "- adapter load for 3 s; ends when it is loaded",
        "- do the new thing",
        "this scaler is newer than this command, which has no words for adapters\n",
    ):
        assert words in text
