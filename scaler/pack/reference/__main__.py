"""Writes the committed pages of ``docs/reference``: ``python -m scaler.pack.reference``, in the repository."""

from __future__ import annotations

from pathlib import Path

from scaler.pack.reference.written import pages

FOLDER = Path(__file__).parents[3] / "docs" / "reference"

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
