"""The garbage collector's pauses: Python's own setting stops everything for as long as KEDA's calls may take in all.

A full collection walks every object there is: 170 ms with 2,000 workloads, every 4 s under load, and every answer that
falls into one waits (measured with ``make bench NAME=rpc``: the 99th percentile was 150 ms). Our values are immutable
and without cycles, and go when the last reference does; what is left for the collector are the cycles that exceptions
and tasks leave now and then.
"""

from __future__ import annotations

import gc

#: New objects before a young collection, young ones before a middle one, middle ones before a full one: Python's own
#: are 700, 10, 10. A middle one still walks no more than some 20,000 objects (a few ms), and a full one comes after
#: tens of minutes under full load instead of after seconds.
THRESHOLDS = (2_000, 10, 1_000)


def shorten_pauses() -> None:
    """Set the collector so. What exists by now, modules above all, is never walked again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
