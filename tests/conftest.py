"""What holds for every test: a property has no deadline. How long an example takes says how busy the machine is."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("loadtide", deadline=None)
settings.load_profile("loadtide")
