"""The ``prometheus`` source: the engines' series, fetched from a Prometheus instead of from the engines.

Prometheus is the transport only. What it holds of each replica becomes the same :class:`EngineSample` that scraping
gives, and the same fold sees it: per-series deltas, resets, stalled replicas and freshness are decided there, once.

- :mod:`.answer`: the body of an instant query's answer, read
- :mod:`.credentials`: token, password and certificates, read again when their files change
- :mod:`.api`: one query asked
- :mod:`.plan`: the queries of one round, the same number for one workload as for all
- :mod:`.targets`: the answers split by scraped target
- :mod:`.rounds`: one round asked, shared by everyone who wants it
- :mod:`.replicas`: one workload's replicas found in a round
- :mod:`.queried`: queries of the operator's own
- :mod:`.kube_counts`: replica counts, out of kube-state-metrics' series
- :mod:`.gpus`: GPU telemetry, out of DCGM exporters' series
"""
