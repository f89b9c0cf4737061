"""Who asks and who is told: the loop, the KEDA service, the exporter, the HTTP API, the store."""
