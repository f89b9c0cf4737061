"""What ``loadtide demo`` and ``make run`` do: an engine to watch, a policy, and a scaler on both; Ctrl-C ends it all.

Without ``--engine`` the engine is the stand-in (:mod:`scaler.lab.standin`) under a repeating wave of requests.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Annotated
from urllib.parse import urlsplit

import typer

from scaler.policy.addresses import is_http_url, no_url, shown_url, to_complete
from scaler.process.options import Address, address, failed

WORKLOAD = "demo/chat"
#: What the stand-in runs with, and a modest guess for a real engine.
STANDIN_BATCH = 16
#: Marks the one line of the policy file that each start may write anew; everything else in it is its owner's.
URL_MARK = "# follows the engine that `make run` starts or is given"
READY_SECONDS = 20.0
STOP_SECONDS = 10.0

POLICY = """\
# The policy of the demonstration, written once by `loadtide demo`; yours to edit. It is read again when you save it.
# Every key, its unit and its default: scaler/policy/model.py. The times here are short, so that a few minutes show a
# whole tide; for a real service leave them at their defaults.
workloads:
  {workload}:
    engine: vllm
    scrape:
      {urls}
    window_seconds: 30              # default 60
    objectives:
      ttft_seconds: 1.0             # time to first token, P95. Try 0.05: nothing gives that, and explain says so
      ttft_critical_seconds: 5.0
    load:
      low_dwell_seconds: 20         # default 120
    batch:
      max: {batch_max}                       # the engine's --max-num-seqs; no metric tells it
    replicas:
      min: 1                        # nothing here could wake it from zero
      max: 4
      cold_start_seconds: 30        # default 120
      down_window_seconds: 20       # default 300
      down_step_seconds: 30         # default 120
"""

TOLD = """
loadtide watches {workload}, {what} at {engine}

  page      {page}
  explain   {loadtide} explain {workload} --url {page}
  KEDA      gRPC on {grpc}
  policy    {policy}: change ttft_seconds there, save, and explain judges by it at the next tick

{expect}
Ctrl-C stops everything. Memory is kept in {memory}; delete {folder} to begin afresh.
"""

WAVE = """\
The stand-in gets a wave of requests every 160 s: 20 s of nothing, a ramp, at 60 s a jump to nearly twice what one
replica serves, at 85 s a plateau, from 115 s the ebb. Watch the state and the desired replicas rise and come back."""
REAL = "Send it requests, and watch the state and the desired replicas."


def urls_line(engine: str) -> str:
    """The line of the policy file that names the engine."""
    return f'urls: ["{engine}"]  {URL_MARK}'


def write_policy(path: Path, engine: str) -> str | None:
    """Make the file name ``engine``: written if absent, else only its marked line is changed.

    Returns what the user must know where the file has no marked line and does not name the engine; else None. Raises
    OSError, ``UnicodeError``.
    """
    if not path.exists():
        written = POLICY.format(workload=WORKLOAD, urls=urls_line(engine), batch_max=STANDIN_BATCH)
        path.write_text(written, encoding="utf-8")
        return None
    text = path.read_text(encoding="utf-8")
    marked = re.compile(rf"urls:.*{re.escape(URL_MARK)}")
    if marked.search(text):
        path.write_text(marked.sub(lambda _: urls_line(engine), text), encoding="utf-8")
        return None
    if engine in text:
        return None
    return (
        f"{path} does not name this run's engine, {shown_url(engine)}, and is left as it is. To let it follow, write "
        f"there:\n      {urls_line(to_complete(engine))}"
    )


def metrics_url(engine: str) -> str:
    """The engine's metrics URL; ``http://host:8000`` means its ``/metrics``. Raises ``typer.BadParameter``."""
    if not is_http_url(engine):
        raise typer.BadParameter(no_url(engine, "http://host:8000/metrics"))
    parts = urlsplit(engine)
    return engine if parts.path not in ("", "/") else f"{parts.scheme}://{parts.netloc}/metrics"


def free_address(wanted: str) -> str:
    """``host:port`` as wanted, or with a free port where something listens there already. Raises
    ``typer.BadParameter``.
    """
    place = address(wanted)
    with socket.socket(socket.AF_INET6 if ":" in place.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((place.host, place.port))
        except OSError:
            try:
                probe.bind((place.host, 0))
            except OSError as error:
                why = f"{wanted}: nothing can listen there ({error.strerror}); write for example 127.0.0.1:8080"
                raise typer.BadParameter(why) from error
        return str(Address(place.host, probe.getsockname()[1]))


@dataclass(slots=True)
class Children:
    """The processes this one started. A terminal's Ctrl-C reaches only us: they are ended by us, in order."""

    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    stopped: bool = False

    def start(self, *command: str, pipe: bool = False) -> subprocess.Popen[str]:
        """Start one more."""
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if pipe else None, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def ask_to_stop(self, _signal: int, _frame: FrameType | None) -> None:
        """The handler of every wish to end."""
        self.stopped = True

    def wait(self) -> int:
        """Until a wish to end (0) or the end of any child (its status)."""
        while not self.stopped:
            for process in self.processes:
                if (status := process.poll()) is not None:
                    return status or 1
            time.sleep(0.1)
        return 0

    def stop(self) -> None:
        """End all, the last started first."""
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def children() -> Iterator[Children]:
    """Children that end with the block, whatever ends it."""
    group = Children()
    for wish in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(wish, group.ask_to_stop)
    try:
        yield group
    finally:
        group.stop()


def comes_up(group: Children, listening: str) -> bool:
    """Wait until something listens at ``listening``; False if a child, patience or the user ends that."""
    place = address(listening)
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and not group.stopped:
        if any(process.poll() is not None for process in group.processes):
            return False
        try:
            socket.create_connection((place.host, place.port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return True
    return False


def demo(
    engine: Annotated[
        str | None, typer.Option(help="Metrics URL of a vLLM to watch. Unset: a stand-in is started.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where the policy and the memory are kept.")] = Path(".loadtide"),
    http: Annotated[str, typer.Option(help="Address of page and API; another port if it is taken.")] = "127.0.0.1:8080",
    grpc: Annotated[str, typer.Option(help="Address for KEDA; another port if it is taken.")] = "127.0.0.1:6000",
) -> None:
    """Run loadtide on this machine, watching a stand-in engine or a real vLLM. No cluster, no GPU.

    [bold]Try it:[/bold]  loadtide demo   or, with an engine of your own,   loadtide demo --engine http://host:8000

    In a checkout [bold]make run[/bold] is the same.

    Next: open the page it names, and ask `loadtide explain` why it decided what it did.
    """
    watched = None if engine is None else metrics_url(engine)
    addresses = [free_address(http), free_address(grpc)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise failed(f"--folder {folder}: cannot be made ({error.strerror}); name a folder") from error
    loadtide = Path(sys.executable).with_name("loadtide")
    with children() as group:
        if watched is None:
            stand_in = group.start(sys.executable, "-m", "scaler.lab.standin", "--wave", pipe=True)
            assert stand_in.stdout is not None
            said = stand_in.stdout.readline()
            if not said:
                raise typer.Exit(stand_in.wait() or 1)
            watched = str(json.loads(said)["metrics"])
        policy, memory = folder / "policy.yaml", folder / "memory.db"
        try:
            warning = write_policy(policy, watched)
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise failed(f"{policy}: cannot be used ({why}); move it away, or name another --folder") from error
        for wanted, got in zip((http, grpc), addresses, strict=True):
            if wanted != got:
                typer.echo(f"{wanted} is taken; using {got} instead")
        group.start(
            *(str(loadtide), "serve", "--policy", str(policy), "--store", str(memory)),
            *("--http", addresses[0], "--grpc", addresses[1]),
        )
        if comes_up(group, addresses[0]):
            typer.echo(
                TOLD.format(
                    workload=WORKLOAD,
                    what="a stand-in for vLLM" if engine is None else "a vLLM",
                    engine=shown_url(watched),
                    page=f"http://{addresses[0]}",
                    loadtide=_shortest(loadtide),
                    grpc=addresses[1],
                    policy=policy,
                    expect=WAVE if engine is None else REAL,
                    memory=memory,
                    folder=folder,
                )
            )
        if warning is not None:
            typer.echo(warning, err=True)
        status = group.wait()
    raise typer.Exit(status)


def _shortest(path: Path) -> Path:
    """As a person would type it from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    typer.run(demo)
