"""Writes the committed files of ``dashboards/``: ``python -m scaler.pack.dashboards``, in the repository."""

from __future__ import annotations

from pathlib import Path

from scaler.pack.dashboards.written import Form, files

FOLDER = Path(__file__).parents[3] / "dashboards"

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in files(Form.JSON).items():
        (FOLDER / name).write_text(text, encoding="utf-8")
