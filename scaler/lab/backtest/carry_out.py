"""A study run to its end before a person's eyes: its progress, and why it could not be done."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from tempfile import TemporaryFile

import aiohttp

from scaler.lab.backtest.asking import Ask, AskError, Kept, Patience
from scaler.lab.backtest.binding import NoSuchWorkloadError
from scaler.lab.backtest.reading import ReadError
from scaler.lab.backtest.study import Backtest, NothingReadError, Setting, study
from scaler.lab.progress import Tell, progress
from scaler.policy.prometheus import PrometheusServer
from scaler.signals.prometheus.api import Api


class Unable(Exception):  # noqa: N818  a state of the world, told to a person
    """The backtest cannot be done, or not written; the text says why, and what to do."""


def carry_out(setting: Setting, server: PrometheusServer, keep: Path | None, now: float) -> Backtest:
    """The study, its progress on standard error. Raises :class:`Unable`."""

    async def studied(done: Tell) -> Backtest:
        async with aiohttp.ClientSession() as session:
            ask: Ask = Patience(Api(server), session)
            return await study(setting, ask if keep is None else Kept(keep, server, ask, now), done)

    try:
        with progress("asking") as tell:
            return asyncio.run(studied(tell))
    except AskError as error:
        raise Unable(f"{server.url}: {error}{hint(str(error))}") from error
    except ReadError as error:
        goes_on = "the same command goes on there" if keep else "with --keep FOLDER a second run would go on there"
        raise Unable(f"{server.url}: reading stopped at {error}{hint(str(error))}; {goes_on}") from error
    except (NoSuchWorkloadError, NothingReadError) as error:
        raise Unable(f"{server.url}: {error}") from error
    except KeyboardInterrupt as error:
        kept = "what was read is kept" if keep else "with --keep FOLDER what was read would be kept"
        raise Unable(f"interrupted; {kept}") from error
    except OSError as error:  # what --keep keeps: nothing else is written meanwhile
        raise Unable(
            f"--keep {keep}: no answer can be kept there any more ({error.strerror}); make room, or name another folder"
        ) from error


def can_keep(folder: Path) -> None:
    """Make the folder for the server's answers. Raises :class:`Unable` where nothing can be kept in it: better now than
    after minutes of reading.
    """
    meant = "name a folder for the server's answers, which is made if there is none"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        raise Unable(f"--keep {folder}: a file is there already; {meant}") from error
    except OSError as error:
        raise Unable(f"--keep {folder}: nothing can be written there ({error.strerror}); {meant}") from error


def hint(said: str) -> str:
    """What usually mends what the server said; "" where nothing is known."""
    if re.search(r"HTTP 40[13]\b", said):
        return " (give credentials: --bearer-token-file, --basic-user, or --header 'X-Scope-OrgID: ...')"
    if re.search(r"HTTP 40[45]\b|HTML|not of a Prometheus API|redirected", said):
        return (
            " (the address is what stands before /api/v1: http://prometheus:9090, http://mimir/prometheus, "
            "http://vmselect:8481/select/0/prometheus)"
        )
    if re.search(r"connection refused|does not resolve|timed out", said):
        return " (is it the right address, and reachable from here? kubectl port-forward makes it so)"
    return ""


def can_write(path: Path) -> None:
    """Better known now than after minutes of reading. What stands in the file stays. Raises :class:`Unable`."""
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise _unwritable(path, error) from error


def write_to(path: Path, text: str) -> None:
    """Write a file. Raises :class:`Unable`."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> Unable:
    return Unable(f"{path}: cannot be written ({error.strerror}); name a file in a folder that is there and yours")
