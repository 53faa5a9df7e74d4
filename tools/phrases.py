"""Fail on phrases that docs/glossary.md lists as not to be used, in code, messages and docs.

.venv/bin/python tools/phrases.py [PATH...]  # exit 1 and name each with its file and line

Case does not matter, and a phrase may be broken over two lines. A method such as `file.tell` is not
a phrase. A line that needs one, such as the Unix account `nobody`, ends in `# phrase: WHY`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"
SECTION = "## Phrases not to use"
PLACES = ("src", "docs", "tools", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile")
SUFFIXES = ("", ".py", ".md", ".types", ".in")
EXEMPT = "# phrase: "
_ROW = re.compile(r"^\| (?P<use>[^|]+) \| (?P<avoid>[^|]*`[^|]*) \|$", re.MULTILINE)


def phrases(glossary: str) -> dict[str, str]:
    """Return what to use in place of each phrase that the glossary lists as not to be used."""
    return {
        phrase.lower(): row["use"].strip()
        for row in _ROW.finditer(glossary.partition(SECTION)[2])
        for phrase in re.findall(r"`([^`]+)`", row["avoid"])
    }


def found(text: str, avoided: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Yield the line of each phrase that is not to be used, and what to do about it."""
    spelled = (r"[\s#*\"']+".join(map(re.escape, phrase.split())) for phrase in avoided)
    pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(spelled)})(?!\w)", re.IGNORECASE)
    lines = text.splitlines()
    for match in pattern.finditer(text):
        number = text.count("\n", 0, match.start()) + 1
        if EXEMPT not in lines[number - 1]:
            phrase = " ".join(re.sub(r"[#*\"']", " ", match[0]).split())
            yield number, f'"{phrase}": use {avoided[phrase.lower()]}'


def files(paths: list[Path]) -> Iterator[Path]:
    """Yield the files to check; the glossary itself quotes the phrases."""
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            hidden = any(
                part.startswith(".") or part.endswith(("__", "-info"))
                for part in file.relative_to(path).parts
            )
            if file.is_file() and file.suffix in SUFFIXES and not hidden and file != GLOSSARY:
                yield file


def main(paths: list[Path]) -> int:
    avoided = phrases(GLOSSARY.read_text())
    count = 0
    for file in files(paths):
        shown = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
        for line, text in found(file.read_text(errors="ignore"), avoided):
            print(f"{shown}:{line}: {text}")
            count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main([Path(arg).resolve() for arg in sys.argv[1:]] or [ROOT / p for p in PLACES]))
