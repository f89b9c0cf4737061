"""Beside the engine: local GPUs, the memory guard on the spot, and the scaler's target on its way to the engine."""
