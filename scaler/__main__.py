"""``python -m scaler`` is ``loadtide``."""

from scaler.cli import app

app()
