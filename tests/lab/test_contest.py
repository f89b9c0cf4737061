"""Cells on several processes: what becomes of them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.patience import at_last


def children(pid: int) -> list[int]:
    """The processes that ``pid`` has begun and that live."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_whoever_is_killed_leaves_no_process_at_work(tmp_path: Path) -> None:
    what = ("--scenario", "night-8b", "--policy", "adaptive", "--seeds", "5", "--out", str(tmp_path / "scorecard.json"))
    score = subprocess.Popen([sys.executable, "-m", "scaler", "score", *what], stderr=subprocess.DEVNULL)

    def workers() -> list[int]:
        found = [pid for pid in children(score.pid) if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]
        assert len(found) == 2
        return found

    try:
        began = at_last(workers)
    finally:
        score.send_signal(signal.SIGKILL)
        score.wait()

    def ended() -> None:
        left = [pid for pid in began if Path(f"/proc/{pid}/cmdline").exists()]
        assert not [pid for pid in left if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()]

    at_last(ended)
