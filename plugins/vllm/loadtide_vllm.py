"""Makes a running vLLM follow the batch that loadtide publishes, and tells loadtide what it really runs.

Before each engine step the scheduler's two knobs, how many requests it lets run and how many tokens it computes in a
step, are set to the target that was last fetched; the same scheduler then admits by them. Nothing restarts, nothing
that runs is dropped: a smaller batch is reached as running requests finish.

The engine comes first. A step only reads a value that a daemon thread has fetched; no step waits for a network, and no
exception leaves this module. Values stay within 1 and what the engine was booted with, for which its buffers were
sized: boot with the largest batch. A target that has expired, and a loadtide that cannot be reached until it has, put
the boot values back.

Two ways in, both in the engine core's process. Installed (or unpacked on PYTHONPATH with its ``.dist-info``), the entry
point in ``vllm.general_plugins`` needs nothing further. As this one file on PYTHONPATH: ``--scheduler-cls
loadtide_vllm.FollowingScheduler``, or ``loadtide_vllm.FollowingAsyncScheduler`` where vLLM schedules asynchronously (on
GPUs it does by default; the other class would switch that off).

Environment: ``LOADTIDE_URL`` (unset: nothing is done), ``LOADTIDE_WORKLOAD`` (``namespace/name``), ``LOADTIDE_TOKEN``
or ``LOADTIDE_TOKEN_FILE`` (to report; without it the target is still followed), ``LOADTIDE_READ_TOKEN`` or
``LOADTIDE_READ_TOKEN_FILE`` (where reading needs another), ``LOADTIDE_REPLICA`` (else ``POD_NAME``, else the host's
name), ``LOADTIDE_CA_FILE`` (for https).

Standard library only, Python 3.9 and newer: an engine image inherits nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import random
import shutil
import socket
import ssl
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

__version__ = "0.1.0"

# A child of vLLM's logger: its lines come out with vLLM's own.
log = logging.getLogger("vllm.loadtide")
#: A source of our own: the process' seed is the engine's, and what is drawn from it is its users' to repeat.
_CHANCE = random.Random()

#: How often what is applied is reported, changed or not; loadtide forgets a replica after 45 s.
REPORT_EVERY_SECONDS = 10.0
#: Changes within this long are told in one report.
GATHER_SECONDS = 0.1
#: One request may take this long, beyond what it was asked to wait.
TIMEOUT_SECONDS = 5.0
#: The longest that a request for the next target is let wait. Below the idle limits of common proxies.
LONGEST_WAIT_SECONDS = 30.0
#: Pause after a failure: the first, doubled with each further one, and the longest.
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 15.0
#: Least time between two requests that brought nothing new, whatever a proxy makes of ``?wait=``; and after one that
#: did: two scalers that disagree behind one name answer every request at once, each with a target that is new.
PAUSE_SECONDS, NEW_PAUSE_SECONDS = 1.0, 0.25
#: A target has 300 bytes; a page that is none is not read to its end.
ANSWER_BYTES = 64 * 1024
ADMISSIONS = ("open", "hold", "shed")
#: Where the engine cores leave what they run for the API server's /metrics; set by the first process.
STATE_VARIABLE = "LOADTIDE_VLLM_STATE"
GAUGES = {
    "loadtide_engine_batch_size": "Most requests that the scheduler lets run at once.",
    "loadtide_engine_token_budget": "Most tokens that the scheduler computes in one step.",
    "loadtide_engine_following": "1 while a published target is followed, 0 while the engine runs its own setting.",
}


class Target(NamedTuple):
    """A published target. None: the engine's own setting. ``admission`` other than open: admit nothing new."""

    batch_size: int | None
    token_budget: int | None
    admission: str
    generation: int


class Held(NamedTuple):
    """A target with its ETag, and when it ends by the monotonic clock."""

    target: Target
    tag: str
    ends: float


class Applied(NamedTuple):
    """What the next step runs with. ``generation`` None: the engine's own setting."""

    batch_size: int
    token_budget: int
    admission: str
    generation: int | None


# -- the scheduler's knobs ---------------------------------------------------------------------------------------------


class Knobs:
    """A scheduler's two knobs, whichever generation of vLLM it is of, and what they were at boot.

    Since 0.31 a scheduler admits while fewer than ``max_num_active_reqs`` run, and ``max_num_running_reqs`` is the
    number of slots, which must never be below what runs: that is asserted after each step and ends the engine. Before,
    ``max_num_running_reqs`` is both (up to 0.22 compared with ``==``), so there it is never set below what runs now;
    none is admitted all the same until fewer run than the target.
    """

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._slots_apart = hasattr(scheduler, "max_num_active_reqs")
        self._limit = "max_num_active_reqs" if self._slots_apart else "max_num_running_reqs"
        self.boot_batch = int(getattr(scheduler, self._limit))
        self.boot_tokens = int(scheduler.max_num_scheduled_tokens)
        config = getattr(scheduler, "scheduler_config", None)
        # Where a prompt, or an image, must fit one step whole, a smaller step would keep it waiting for ever.
        self.budget_is_live = bool(getattr(config, "enable_chunked_prefill", True)) and not bool(
            getattr(config, "disable_chunked_mm_input", False) or getattr(scheduler, "is_encoder_decoder", False)
        )
        self._tokens_each = 1 + int(getattr(scheduler, "num_spec_tokens", 0) or 0)
        self._block = int(getattr(scheduler, "block_size", 16) or 16)
        self.engines = _engines_of_a_replica(scheduler)

    @property
    def running(self) -> int:
        """Requests running now."""
        return len(self._scheduler.running)

    def wanted(self, target: Target | None) -> Applied:
        """What ``target`` comes to here, now; None: the boot values."""
        if target is None:
            return Applied(self.boot_batch, self.boot_tokens, "open", None)
        batch, tokens = self.boot_batch, self.boot_tokens
        if target.batch_size is not None:
            # A replica's target is shared by its data-parallel engines.
            batch = min(max(math.ceil(target.batch_size / self.engines), 1), self.boot_batch)
        if target.token_budget is not None and self.budget_is_live:
            # Each running request needs its tokens in every step, or the last ones of the list starve; and one block
            # more, or no prompt goes on.
            least = self.running * self._tokens_each + self._block
            tokens = min(max(target.token_budget, least), self.boot_tokens)
        return Applied(batch, tokens, "open" if target.admission == "open" else "hold", target.generation)

    def set(self, target: Target | None) -> Applied:
        """Set the knobs for the step that comes. Between steps only: the budget is asserted at the end of one."""
        applied = self.wanted(target)
        limit = applied.batch_size if applied.admission == "open" else 0
        if not self._slots_apart:
            limit = max(limit, self.running)
        setattr(self._scheduler, self._limit, limit)
        self._scheduler.max_num_scheduled_tokens = applied.token_budget
        return applied


def _engines_of_a_replica(scheduler: Any) -> int:
    """How many data-parallel engines answer behind one /metrics page, and so are one replica to loadtide."""
    config = getattr(scheduler, "parallel_config", None)
    apart = getattr(config, "data_parallel_external_lb", False) or getattr(config, "data_parallel_hybrid_lb", False)
    size = getattr(config, "data_parallel_size_local" if apart else "data_parallel_size", 1)
    return max(1, int(size or 1))


# -- following ---------------------------------------------------------------------------------------------------------


class Follower:
    """Sets one scheduler's knobs before each step, by the target that ``link`` holds."""

    def __init__(self, scheduler: Any, link: Link) -> None:
        self._knobs = Knobs(scheduler)
        self._link = link
        self._applied = self._knobs.wanted(None)
        #: Set once something went wrong in a step: from then on nothing is touched any more.
        self.broken = False
        #: Set whenever something else is applied.
        self.changed = threading.Event()
        parallel = getattr(scheduler, "parallel_config", None)
        rank = getattr(parallel, "data_parallel_index", None)  # newer versions tell the two apart
        self._rank = int((getattr(parallel, "data_parallel_rank", 0) if rank is None else rank) or 0)

    def step(self) -> None:
        """Before a step, in the engine's thread. Never raises and never waits."""
        if self.broken:
            return
        try:
            target = self._link.target()
            if target is None and self._applied.generation is None:
                return  # nothing was set, nothing is to be put back
            applied, before = self._knobs.set(target), self._applied
            self._applied = applied
            if applied._replace(token_budget=0) != before._replace(token_budget=0):
                self.changed.set()  # not for a budget, which may move with what runs at every step
        except Exception:  # noqa: BLE001  the engine goes on whatever happens here
            self._break()

    def _break(self) -> None:
        self.broken = True
        with contextlib.suppress(Exception):
            self._applied = self._knobs.wanted(None)
            self._knobs.set(None)
        with contextlib.suppress(Exception):
            log.exception("loadtide: setting the scheduler failed; the engine keeps its own setting from now on")

    def applied(self) -> Applied:
        """What the engine runs with. One that is empty makes no steps: it is what its next step will run with."""
        if not self.broken and self._knobs.running == 0:
            return self._knobs.wanted(self._link.target())
        return self._applied

    def report(self, replica: str) -> dict[str, Any]:
        """The body of ``POST .../applied``. The batch is that of the replica, whose engines share it."""
        applied, target, batch = self.applied(), self._link.target(), 0
        batch = applied.batch_size * self._knobs.engines
        if target is not None and target.batch_size is not None and target.generation == applied.generation:
            rounded_up = batch - target.batch_size
            batch = target.batch_size if 0 < rounded_up < self._knobs.engines else batch
        return {
            "replica": f"{replica}/{self._rank}" if self._knobs.engines > 1 else replica,
            "batch_size": batch,
            "token_budget": applied.token_budget,
            "admission": applied.admission,
            "running": self._knobs.running,
            "generation": applied.generation,
        }

    def gauges(self) -> dict[str, float]:
        """The values of :data:`GAUGES`."""
        applied = self.applied()
        values = (applied.batch_size, applied.token_budget, applied.generation is not None)
        return dict(zip(GAUGES, map(float, values)))

    @property
    def engine(self) -> str:
        """The engine's number among those of its server, as vLLM's own metrics label it."""
        return str(self._rank)


# -- settings ----------------------------------------------------------------------------------------------------------


class Settings(NamedTuple):
    """Where loadtide is, and who we are there. ``token`` and ``read_token``: (text, file), each perhaps empty."""

    url: str
    workload: str
    replica: str
    token: tuple[str, str]
    read_token: tuple[str, str]
    ca_file: str


def settings_of(environment: Any) -> Settings | None:
    """The settings in the environment; None without ``LOADTIDE_URL``. Raises ValueError, saying what to write."""
    url = environment.get("LOADTIDE_URL", "").strip().rstrip("/")
    if not url:
        return None
    if "@" in url:  # it would never be sent, and every line of the log would repeat it
        raise ValueError("LOADTIDE_URL has a user or a password in it; leave them out, and name a LOADTIDE_TOKEN_FILE")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"LOADTIDE_URL={url!r} is no URL; write for example http://loadtide.loadtide.svc:8080")
    workload = environment.get("LOADTIDE_WORKLOAD", "").strip()
    if len(workload.split("/")) != 2 or not all(workload.split("/")):
        raise ValueError(f"LOADTIDE_WORKLOAD={workload!r} must be the ScaledObject's namespace/name")
    replica = environment.get("LOADTIDE_REPLICA") or environment.get("POD_NAME") or socket.gethostname()
    token = environment.get("LOADTIDE_TOKEN", ""), environment.get("LOADTIDE_TOKEN_FILE", "")
    read = environment.get("LOADTIDE_READ_TOKEN", ""), environment.get("LOADTIDE_READ_TOKEN_FILE", "")
    ca_file = environment.get("LOADTIDE_CA_FILE", "")
    return Settings(url, workload, replica, token, read if any(read) else token, ca_file)


def _read(token: tuple[str, str]) -> str:
    """A token; a file is read each time, because its contents are replaced under it."""
    text, file = token
    if file:
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
    return text.strip()


# -- the link to loadtide ----------------------------------------------------------------------------------------------


class Link:
    """Holds the last target and fetches the next, in daemon threads; :meth:`target` is all that a step asks."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        namespace, name = settings.workload.split("/")
        self._base = f"{settings.url}/v1/workloads/{quote(namespace, safe='')}/{quote(name, safe='')}"
        self._opener = _opener(settings.ca_file)
        self._held: Held | None = None
        self._said: dict[str, str] = {}

    def target(self) -> Target | None:
        """The target to follow now; None: none, or it has expired."""
        held = self._held
        return held.target if held is not None and time.monotonic() < held.ends else None

    def start(self, follower: Follower) -> None:
        """Fetch and report for as long as the process lives."""
        for work in (self._fetch_for_ever, self._report_for_ever):
            threading.Thread(target=work, args=(follower,), name=f"loadtide{work.__name__}", daemon=True).start()

    # fetching

    def _fetch_for_ever(self, follower: Follower) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                new = self.fetch()
                failures = 0
                self._say("fetch", "")
            except Exception as problem:  # noqa: BLE001  whatever it is, it is tried again
                failures, new = failures + 1, False
                self._say("fetch", f"no target from {self._settings.url}: {_worded(problem)}")
            if new:
                follower.changed.set()
            pause = NEW_PAUSE_SECONDS if new else PAUSE_SECONDS - (time.monotonic() - began)
            if failures:
                pause = min(RETRY_SECONDS * 2 ** (failures - 1), LONGEST_RETRY_SECONDS) * _CHANCE.uniform(0.75, 1.0)
            time.sleep(max(0.0, pause))

    def fetch(self) -> bool:
        """Ask once, and hold what is answered. Whether it is another target than before. Raises whatever is wrong."""
        held = self._held
        headers, wait = {}, 0.0
        if held is not None:
            headers["If-None-Match"] = held.tag
            # So that the answer comes well before what is held ends.
            wait = min(max((held.ends - time.monotonic()) / 3, 0.0), LONGEST_WAIT_SECONDS)
        status, answered, body = self._ask("GET", f"target?wait={wait:.1f}", headers, None, TIMEOUT_SECONDS + wait)
        now = time.monotonic()
        if status == 304 and held is not None:
            self._held = held._replace(ends=now + _seconds(answered.get("Loadtide-Valid-Seconds")))
            return False
        document = json.loads(body)
        target = parse_target(document)
        lasts = _seconds(answered.get("Loadtide-Valid-Seconds") or document.get("valid_seconds"))
        self._held = Held(target, answered.get("ETag") or "", now + lasts)
        return held is None or held.target != target

    # reporting

    def _report_for_ever(self, follower: Follower) -> None:
        told: Applied | None = None
        while True:
            follower.changed.wait(REPORT_EVERY_SECONDS)
            if follower.changed.is_set():
                time.sleep(GATHER_SECONDS)
                follower.changed.clear()
            try:
                applied = follower.applied()
                if told is None or applied.generation != told.generation:
                    told = applied
                    log.info("loadtide: %s", _shown(applied))
                publish(follower)
                self.report(follower)
                self._say("report", "")
            except Exception as problem:  # noqa: BLE001
                self._say("report", f"not reported to {self._settings.url}: {_worded(problem)}")

    def report(self, follower: Follower) -> None:
        """Report once; without a token nothing is reported. Raises whatever is wrong."""
        token = _read(self._settings.token)
        if not token:
            return
        body = json.dumps(follower.report(self._settings.replica)).encode()
        self._ask("POST", "applied", {"Content-Type": "application/json"}, body, TIMEOUT_SECONDS)

    def _ask(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None, timeout: float
    ) -> tuple[int, Any, bytes]:
        """(status, headers, body). 304 is an answer; any other refusal is raised."""
        token = _read(self._settings.token if method == "POST" else self._settings.read_token)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        headers["User-Agent"] = f"loadtide-vllm/{__version__}"
        request = urllib.request.Request(f"{self._base}/{path}", data=body, headers=headers, method=method)
        try:
            with self._opener.open(request, timeout=timeout) as answer:
                return answer.status, answer.headers, answer.read(ANSWER_BYTES)
        except urllib.error.HTTPError as refused:
            with refused:
                if refused.code == 304:
                    return 304, refused.headers, b""
                text = refused.read(300).decode(errors="replace")
            raise OSError(f"HTTP {refused.code}: {text}") from None

    def _say(self, what: str, problem: str) -> None:
        """Log a trouble when it begins, when it becomes another, and when it ends; not each time."""
        before = self._said.get(what, "")
        if problem != before:
            self._said[what] = problem
            if problem:
                log.warning("loadtide: %s", problem)
            else:
                log.info("loadtide: %s works again", what)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is refused: it would carry the token to whoever is named there."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _opener(ca_file: str) -> urllib.request.OpenerDirector:
    context = ssl.create_default_context(cafile=ca_file or None)
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on refuses what clusters sign with
    return urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))


def parse_target(document: Any) -> Target:
    """The target in a JSON document. Raises ValueError for one that cannot be meant."""
    if not isinstance(document, dict) or "batch_size" not in document:
        raise ValueError("the answer is no target")
    admission = document.get("admission", "open")
    if admission not in ADMISSIONS:
        raise ValueError(f"admission {str(admission)[:40]!r} is none of {', '.join(ADMISSIONS)}")
    batch, tokens = (_count(name, document.get(name), 1) for name in ("batch_size", "token_budget"))
    return Target(batch, tokens, admission, _count("generation", document.get("generation"), 0) or 0)


def _count(name: str, value: Any, least: int) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} {str(value)[:40]!r} is no whole number from {least} up")
    return value


def _seconds(value: Any) -> float:
    """Seconds that something lasts; what cannot be read lasts none."""
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return 0.0
    return min(max(seconds, 0.0), 3600.0) if math.isfinite(seconds) else 0.0


def _shown(applied: Applied) -> str:
    whose = "its own setting" if applied.generation is None else f"target {applied.generation}"
    return f"{whose}: batch {applied.batch_size}, {applied.token_budget} tokens a step, admission {applied.admission}"


def _worded(problem: Exception) -> str:
    return f"{type(problem).__name__}: {problem}"[:300]


# -- ways in -----------------------------------------------------------------------------------------------------------

_lock = threading.Lock()
_followers: list[Follower] = []


def attach(scheduler: Any) -> None:
    """Make ``scheduler`` follow, once. Whatever is wrong is logged, and the scheduler then left as it is."""
    try:
        if getattr(scheduler, "_loadtide", None) is not None:
            return
        settings = settings_of(os.environ)
        if settings is None:
            return
        link = Link(settings)
        follower = Follower(scheduler, link)
        schedule = scheduler.schedule

        def following(*args: Any, **kwargs: Any) -> Any:
            follower.step()
            return schedule(*args, **kwargs)

        # On the instance, so that whichever subclass defines `schedule`, it is that one which is called.
        scheduler.schedule = following
        scheduler._loadtide = follower
        with _lock:
            _followers.append(follower)
        link.start(follower)
        log.info("loadtide: following %s of %s as %s", settings.workload, settings.url, settings.replica)
        if not any(settings.token):
            log.warning("loadtide: LOADTIDE_TOKEN is not set, so what is applied is not reported")
    except Exception:
        log.exception("loadtide: not following; the engine keeps its own setting")


def register() -> None:
    """vLLM's entry point: called in each of its processes. Schedulers made from now on follow; only the engine core
    makes one.
    """
    try:
        if settings_of(os.environ) is None:
            return
        _patch()
        expose()
    except Exception:
        log.exception("loadtide: not following; the engine keeps its own setting")


def _patch() -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    if getattr(Scheduler, "_loadtide_patched", False):
        return
    made = Scheduler.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        attach(self)

    Scheduler.__init__ = init
    Scheduler._loadtide_patched = True


def __getattr__(name: str) -> Any:
    """``FollowingScheduler`` and ``FollowingAsyncScheduler``, made when asked for: vLLM is imported only then."""
    if name == "FollowingScheduler":
        from vllm.v1.core.sched.scheduler import Scheduler

        return following(Scheduler, name)
    if name == "FollowingAsyncScheduler":
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler

        return following(AsyncScheduler, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def following(scheduler_class: Any, name: str) -> Any:
    """A subclass of ``scheduler_class`` whose instances follow."""

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        scheduler_class.__init__(self, *args, **kwargs)
        attach(self)

    return type(name, (scheduler_class,), {"__init__": init, "__module__": __name__, "__doc__": "It follows loadtide."})


# -- gauges in the engine's own /metrics -------------------------------------------------------------------------------


def publish(follower: Follower) -> None:
    """Leave the gauges where the API server's process finds them; that is another one than the engine core's."""
    gauges = follower.gauges()
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):  # several API servers: prometheus_client gathers from files itself
        for name, value in gauges.items():
            gauge = _multiprocess_gauge(name)
            if gauge is not None:
                gauge.labels(engine=follower.engine).set(value)
        return
    folder = os.environ.get(STATE_VARIABLE)
    if folder and os.path.isdir(folder):
        path = os.path.join(folder, f"{follower.engine}.json")
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump({"pid": os.getpid(), "gauges": gauges}, file)
        os.replace(f"{path}.new", path)


_multiprocess_gauges: dict[str, Any] = {}
_exposed = False


def _multiprocess_gauge(name: str) -> Any:
    if name not in _multiprocess_gauges:
        try:
            from prometheus_client import Gauge

            gauge = Gauge(name, GAUGES[name], ["engine"], multiprocess_mode="mostrecent")
        except Exception:  # noqa: BLE001  none here, or too old for the mode
            gauge = None
        _multiprocess_gauges[name] = gauge
    return _multiprocess_gauges[name]


def expose() -> None:
    """Tell the gauges on this process' /metrics, if it has one. The first process makes the folder that is read."""
    try:
        from prometheus_client import REGISTRY
    except ImportError:
        return
    if os.environ.get(STATE_VARIABLE) is None:
        try:
            folder = tempfile.mkdtemp(prefix="loadtide-vllm-")
        except OSError as problem:  # a read-only root without /tmp
            log.warning("loadtide: no gauges in the engine's /metrics: %s", _worded(problem))
            return
        os.environ[STATE_VARIABLE] = folder
        _remove_at_exit(folder)
    global _exposed
    if not _exposed:
        _exposed = True
        REGISTRY.register(StateCollector())


def _remove_at_exit(folder: str) -> None:
    import atexit

    maker = os.getpid()

    def remove() -> None:
        if os.getpid() == maker:  # a forked child inherits this, and the folder is not its own
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)


class StateCollector:
    """A ``prometheus_client`` collector over what the engine cores left."""

    def describe(self) -> list[Any]:
        """Nothing is known at registration: the engine cores start later."""
        return []

    def collect(self) -> Iterator[Any]:
        """One family for each gauge; none before an engine core has left anything."""
        from prometheus_client.core import GaugeMetricFamily

        told = dict(_states())
        for name, text in GAUGES.items() if told else ():
            family = GaugeMetricFamily(name, text, labels=["engine"])
            for engine, gauges in sorted(told.items()):
                if name in gauges:
                    family.add_metric([engine], gauges[name])
            yield family


def _states() -> Iterator[tuple[str, dict[str, float]]]:
    folder = os.environ.get(STATE_VARIABLE, "")
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        engine, ending = os.path.splitext(name)
        if ending == ".json":
            with contextlib.suppress(OSError, ValueError, KeyError):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    state = json.load(file)
                os.kill(int(state["pid"]), 0)  # of an engine core that is gone nothing is told
                yield engine, state["gauges"]
