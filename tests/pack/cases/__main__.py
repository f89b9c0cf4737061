"""Writes ``rules/tests``: ``python -m tests.pack.cases``, in the repository."""

from tests.pack.cases.written import RULES, files

if __name__ == "__main__":
    for old in (RULES / "tests").glob("*.yaml"):
        old.unlink()
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
