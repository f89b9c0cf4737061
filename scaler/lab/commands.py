"""The lab's commands: one small function each, no logic. What they need is imported when they run, so that the scaler
starts without it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from scaler.lab.run import demo
from scaler.process.options import told

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler.lab.contest import Played

lab = typer.Typer(rich_markup_mode="rich")
lab.command()(demo)

#: A trace is thinned to about so many requests unless told otherwise.
MOST_REQUESTS = 100_000

Data = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        file_okay=False,
        envvar="LOADTIDE_DATA",
        help="Folder with the public traces that some scenarios need. Without it those cannot be played.",
    ),
]


def _list_scenarios() -> None:
    from scaler.lab.hardware import HARDWARE
    from scaler.lab.policies import POLICIES
    from scaler.lab.scenarios import SCENARIOS

    scenarios = Table("scenario", "what", "on", "cold start", "scored", "needs --data")
    for each in SCENARIOS.values():
        cold_start = f"{each.cold_start_seconds:g} s"
        scenarios.add_row(each.name, each.summary, each.hardware_name, cold_start, each.half, each.file or "")
    policies = Table("policy", "what")
    for name, entry in POLICIES.items():
        policies.add_row(name, entry.summary)
    machines = Table("hardware", "GPUs per replica", "KV cache, tokens")
    for name, hardware in HARDWARE.items():
        machines.add_row(name, str(hardware.gpus), f"{hardware.kv_tokens}")
    Console().print(scenarios, policies, machines)


def _failed(text: str) -> typer.Exit:
    typer.secho(text, err=True)
    return typer.Exit(2)


def _can_be_written(*paths: Path | None) -> None:
    """Asked before what takes minutes, not after."""
    for path in paths:
        if path is None:
            continue
        folder = path.parent
        if path.is_dir():
            raise _failed(f"{path} is a folder; write the name of a file in it")
        if not folder.is_dir():
            raise _failed(f"{path}: cannot be written (there is no folder {folder}); make it first")
        if not os.access(path if path.exists() else folder, os.W_OK):
            raise _failed(f"{path}: cannot be written (permission denied); name another place")


def _known(given: Sequence[str], known: Sequence[str], what: str) -> None:
    for name in given:
        if name not in known:
            raise _failed(f"there is no {what} {name!r}; there are: {', '.join(known)}")


def results_table(played: Sequence[Played]) -> Table:
    """What each policy got in one scenario."""
    table = Table("policy", "kept", "GPU-hours", "against first", "mean ready", "most", "changes", box=SIMPLE)
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    base = played[0].outcome.gpu_hours
    for index, each in enumerate(played):
        ready = [moment.ready for moment in each.run.timeline]
        table.add_row(
            each.policy.name,
            f"{each.outcome.attainment:.2%}",
            f"{each.outcome.gpu_hours:.2f}",
            "" if index == 0 or not base else f"{each.outcome.gpu_hours / base - 1:+.0%}",
            f"{sum(ready) / len(ready):.2f}",
            str(max(ready)),
            str(each.outcome.replica_changes),
        )
    return table


@lab.command()
def simulate(
    scenario: Annotated[str, typer.Argument(help="Its name; --list shows all.")] = "",
    policy: Annotated[str, typer.Option(help="The first policy: the others are set beside it.")] = "adaptive",
    vs: Annotated[list[str] | None, typer.Option(help="A policy beside it; repeat for more.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same requests and the same result.")] = 1,
    knob: Annotated[float, typer.Option(min=0.1, max=4.0, help="Every policy's load target, times this.")] = 1.0,
    lost_share: Annotated[float, typer.Option(min=0.0, max=1.0, help="How many of the scrapes are lost.")] = 0.0,
    trace: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Instead of a scenario: your requests, from a file."),
    ] = None,
    start: Annotated[float, typer.Option(min=0.0, help="Play the trace from this second on.")] = 0.0,
    seconds: Annotated[float | None, typer.Option(min=60.0, help="Play so much of the trace; all of it else.")] = None,
    most: Annotated[int, typer.Option(min=1, help="Thin the trace to about so many requests.")] = MOST_REQUESTS,
    hardware: Annotated[str | None, typer.Option(help="Other hardware than the scenario's; --list shows all.")] = None,
    cold_start: Annotated[
        float | None, typer.Option(min=0.0, max=86_400.0, help="Another cold start, seconds.")
    ] = None,
    floor: Annotated[int | None, typer.Option(min=0, help="Never fewer replicas.")] = None,
    ceiling: Annotated[int | None, typer.Option(min=1, help="Never more replicas.")] = None,
    ttft: Annotated[float | None, typer.Option(min=0.001, help="Another promise: seconds to the first token.")] = None,
    tpot: Annotated[float | None, typer.Option(min=0.0001, help="Another promise: seconds per output token.")] = None,
    fill_seconds: Annotated[
        float | None,
        typer.Option(min=0.0, help="Engines batch statically: a batch waits so long to fill. Else continuously."),
    ] = None,
    data: Data = None,
    report: Annotated[Path | None, typer.Option(help="Write a page with timelines here (HTML, one file).")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="Show the scenarios and policies, and end.")] = False,
) -> None:
    """Play a scenario against our policy and its rivals, and see what each kept and what it cost.

    [bold]Example:[/bold]  loadtide simulate ramp-llm-d --vs hpa-in-flight --vs knative-kpa --report ramp.html

    [bold]Example:[/bold]  loadtide simulate --trace mine.csv --hardware llama-3.1-8b-h100 --vs hpa-in-flight

    Engines, their metrics, scrapes, KEDA and the HPA are modelled; what decides is the code of [bold]serve[/bold]. A
    trace is a CSV with at,prompt_tokens,output_tokens, or a file of Azure's, Mooncake's or ServeGen's public traces.
    Next: open the report in a browser; [bold]loadtide score[/bold] plays everything.
    """
    from scaler.lab.contest import measured_truth, play
    from scaler.lab.hardware import HARDWARE
    from scaler.lab.policies import POLICIES
    from scaler.lab.progress import progress
    from scaler.lab.report import page
    from scaler.lab.scenarios import SCENARIOS, changed, of_trace
    from scaler.lab.seasons import learned_from

    if list_all or not (scenario or trace):
        _list_scenarios()
        return
    if scenario and trace:
        raise _failed(f"a scenario or a trace, not both: leave out {scenario} or --trace {trace}")
    if scenario and (start, seconds, most) != (0.0, None, MOST_REQUESTS):
        raise _failed("--start, --seconds and --most say what is played of a --trace; a scenario is played as it is")
    chosen = list(dict.fromkeys([policy, *(vs or [])]))
    _known([scenario] if scenario else [], list(SCENARIOS), "scenario")
    _known([hardware] if hardware else [], list(HARDWARE), "hardware")
    _known(chosen, list(POLICIES), "policy")
    if scenario and (file := SCENARIOS[scenario].file) and data is None:
        raise _failed(f"{scenario} needs the trace {file}; give its folder with --data")
    _can_be_written(report)
    try:
        what = changed(
            SCENARIOS[scenario] if trace is None else of_trace(trace, start=start, seconds=seconds, most=most),
            hardware_name=hardware,
            cold_start_seconds=cold_start,
            floor=floor,
            ceiling=ceiling,
            ttft_seconds=ttft,
            tpot_seconds=tpot,
            fill_seconds=fill_seconds,
        )
        with progress(f"{what.name}: what one replica serves", total=len(chosen)) as tell:
            truth, requests = measured_truth(what, data), what.requests(data, seed)
            season, played = learned_from(what.past, data, seed), []
            for index, name in enumerate(chosen):
                tell(index, f"{what.name}: {name}")
                played.append(play(what, name, requests, truth, knob, seed, lost_share, season))
    except (OSError, ValueError) as error:
        raise _failed(f"cannot play {scenario or trace}: {told(error)}") from error
    Console().print(results_table(played))
    if report is not None:
        report.write_text(page(played, truth, seed), encoding="utf-8")
        typer.echo(f"timelines: {report}")


@lab.command()
def score(
    out: Annotated[Path, typer.Option(help="Every row, as JSON.")] = Path("scorecard.json"),
    markdown: Annotated[Path | None, typer.Option(help="The readings, as Markdown.")] = None,
    data: Data = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes at once.")] = 2,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; the same for every policy.")] = 5,
    scenario: Annotated[list[str] | None, typer.Option(help="Only this scenario; repeat for more.")] = None,
    policy: Annotated[list[str] | None, typer.Option(help="Only this policy; repeat for more.")] = None,
    half: Annotated[str | None, typer.Option(help="Only scenarios of this half: tune or report.")] = None,
) -> None:
    """Play every scenario against every policy at every knob, and write the scorecard.

    [bold]Example:[/bold]  loadtide score --data traces --out scorecard.json --markdown scorecard.md --jobs 2

    Takes about 18 minutes on two cores; --scenario, --policy and --seeds make it shorter.
    Next: read the Markdown; [bold]loadtide simulate SCENARIO --report page.html[/bold] shows why.
    """
    from scaler.lab.contest import contest
    from scaler.lab.policies import POLICIES
    from scaler.lab.progress import progress
    from scaler.lab.scenarios import SCENARIOS
    from scaler.lab.score import KNOBS
    from scaler.lab.scorecard import as_json, as_markdown
    from scaler.lab.traces import TraceError

    policies = policy or [name for name, entry in POLICIES.items() if entry.scored]
    _known(policies, list(POLICIES), "policy")
    _known(scenario or [], list(SCENARIOS), "scenario")
    _known([half] if half else [], ["tune", "report"], "half")
    scored = [each.name for each in SCENARIOS.values() if each.half != "shown"]
    wanted = [SCENARIOS[name] for name in scenario or scored]
    names = [each.name for each in wanted if half in (None, each.half) and (data is not None or each.file is None)]
    left_out = [each.name for each in wanted if each.file is not None and data is None]
    if not names:
        raise _failed("no scenario is left to play; those with traces of others need --data")
    _can_be_written(out, markdown)
    begun = time.monotonic()
    try:
        with progress("runs", total=len(names) * seeds * len(policies) * len(KNOBS)) as tell:
            played = 0

            def done(name: str, rows: int) -> None:
                nonlocal played
                played += rows
                tell(played, f"last: {name}")

            rows = contest(names, policies, KNOBS, range(1, seeds + 1), data, jobs=jobs, done=done)
    except (OSError, TraceError) as error:
        raise _failed(f"cannot score: {told(error)}") from error
    seconds = time.monotonic() - begun
    out.write_text(as_json(rows, seconds), encoding="utf-8")
    if markdown is not None:
        markdown.write_text(as_markdown(rows, seconds, jobs=jobs), encoding="utf-8")
    typer.echo(f"{len(rows)} runs in {seconds / 60:.1f} min: {out}{f', {markdown}' if markdown else ''}")
    if left_out:
        typer.echo(f"left out for want of --data: {', '.join(left_out)}")


@lab.command()
def cards(
    scenario: Annotated[list[str] | None, typer.Argument(help="Which; all of them otherwise.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds; the same for every way.")] = 3,
    data: Data = None,
) -> None:
    """Play several models on one card, before and after: with parts of their own and lent ones, awake, asleep, at zero.

    [bold]Example:[/bold]  loadtide cards two-by-turns --seeds 5

    A promise is kept where the first token comes within 1 s and the others within 50 ms each. Memory is what the
    models' engines hold of the card, on average.
    Next: docs/shared-gpus.md and docs/sleep.md say what is declared for it.
    """
    from statistics import mean

    from scaler.lab.card_scenarios import CARD_SCENARIOS
    from scaler.lab.progress import progress

    _known(scenario or [], list(CARD_SCENARIOS), "scenario")
    wanted = scenario or [each.name for each in CARD_SCENARIOS.values() if data is not None or each.file is None]
    if data is None and (lacking := [name for name in wanted if CARD_SCENARIOS[name].file is not None]):
        raise _failed(f"{lacking[0]} needs the trace {CARD_SCENARIOS[lacking[0]].file}; give its folder with --data")
    table = Table("scenario", "way", "kept", "worst model", "memory held", "largest batch", box=SIMPLE)
    results = {}
    with progress("cards", total=len(wanted)) as tell:
        for index, name in enumerate(wanted):
            tell(index, name)
            try:
                results[name] = [CARD_SCENARIOS[name].play(seed, data) for seed in range(1, seeds + 1)]
            except (OSError, ValueError) as error:
                raise _failed(f"cannot play {name}: {told(error)}") from error
    for name, played in results.items():
        for way in played[0]:
            runs = [each[way] for each in played]
            asked = [sum(each.requests for each in run) for run in runs]
            kept = [
                sum(each.attainment * each.requests for each in run) / total
                for run, total in zip(runs, asked, strict=True)
            ]
            table.add_row(
                name,
                way,
                f"{mean(kept):.1%}",
                f"{mean(min(each.attainment for each in run) for run in runs):.1%}",
                f"{mean(sum(each.memory_share for each in run) for run in runs):.1%}",
                str(max(each.largest_batch for run in runs for each in run)),
            )
    Console().print(table)
