"""The garbage collector's pauses: Python's own setting stops everything for as long as KEDA's calls may take in all.

The collector walks whatever has been made since its last round and still lives: with 2,000 workloads ticking that is
every snapshot of the last seconds, 60 to 100 ms in a middle collection after ten young ones, and 200 to 300 ms in a
full one. As Python sets it, the first comes every second or two under load and the other every four; the 99th
percentile of KEDA's calls was just that long (``make bench NAME=rpc``). Our values are immutable and without cycles,
and go when the last reference does; what is left for the collector are the cycles that gRPC's calls leave (3 objects
each), and those of exceptions and tasks. Nearly all of them die young.
"""

from __future__ import annotations

import gc

#: New objects before a young collection, young ones before a middle one, middle ones before a full one: Python's own
#: are 700, 10, 10. A young one takes 1 to 3 ms. What cycles outlive it (those of calls under way at that moment) wait
#: for a middle one, and add up to some 10 MB until then: that comes after minutes under full load.
THRESHOLDS = (700, 5_000, 10)


def shorten_pauses() -> None:
    """Set the collector so. What exists by now, modules above all, is never walked again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
