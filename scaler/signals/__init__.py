"""What is measured: tri-state signals, engine presets, sources, and the pure window fold."""
