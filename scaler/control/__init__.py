"""How it decides: pure functions over values. No clock, no I/O, no threads, no logging."""
