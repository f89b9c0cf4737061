"""Savings counted before a person's eyes: the server asked, and why it could not be done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import aiohttp

from scaler.lab.backtest.asking import AskError, Patience
from scaler.lab.backtest.carry_out import Unable, hint
from scaler.lab.backtest.options import Options, check_price, labels_meant, server_meant
from scaler.lab.backtest.span import Span, read_duration, read_time
from scaler.lab.progress import progress
from scaler.lab.savings.figures import Savings, savings_of
from scaler.lab.savings.recorded import STEP_SECONDS, Recorded, read_recorded
from scaler.policy.layers import PolicyFile
from scaler.signals.prometheus.api import Api

#: Workloads named where one is not found.
_NAMED = 10


def counted(
    options: Options,
    now: float,
    wanted: tuple[str, ...],
    hour_price: float | None,
    currency: str | None,
    gpus_per_replica: float | None,
) -> tuple[Span, list[Savings]]:
    """The span and each workload's figures, progress on standard error. Raises ``ValueError`` that says what to write
    instead, and :class:`~scaler.lab.backtest.carry_out.Unable`.
    """
    file = PolicyFile.empty() if options.policy is None else PolicyFile.load(options.policy)
    check_price(hour_price, currency)
    server, match = server_meant(file, options.prometheus, options), labels_meant(options.match)
    end = now if options.until is None else read_time(options.until)
    if end > now:
        raise ValueError(f"--until {options.until}: lies in the future; nothing has been recorded there yet")
    end -= end % STEP_SECONDS
    span = Span(end - read_duration(options.length) // STEP_SECONDS * STEP_SECONDS, end)

    async def read(done: Callable[[float], None]) -> dict[str, Recorded]:
        async with aiohttp.ClientSession() as session:
            return await read_recorded(Patience(Api(server), session), span, match, done)

    try:
        with progress("reading") as tell:
            found = asyncio.run(read(lambda share: tell(share, "reading")))
    except AskError as error:
        raise Unable(f"{server.url}: {error}{hint(str(error))}") from error
    if not found:
        raise Unable(
            f"{server.url}: has nothing of loadtide's own in that range; is /metrics of `loadtide serve` scraped there "
            "(deploy has a ServiceMonitor), with honorLabels: true?"
        )
    for name in wanted:
        if name not in found:
            there = ", ".join(sorted(found)[:_NAMED]) + (" and more" if len(found) > _NAMED else "")
            raise Unable(f"--workload {name}: was not recorded in that range; there are {there}")
    figures = [savings_of(found[name], hour_price, gpus_per_replica) for name in wanted or sorted(found)]
    return span, [each if currency is None else replace(each, currency=currency) for each in figures if each]
