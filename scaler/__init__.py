"""loadtide: one control loop for the replicas and the batch size of GPU inference services."""

__version__ = "0.1.0"
