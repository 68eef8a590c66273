"""The pages of the documentation, taken apart: fenced blocks, the commands in transcripts, links, headings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PAGES", "ROOT", "anchors", "blocks", "commands", "images", "links"]

ROOT = Path(__file__).resolve().parent.parent.parent
# What others have written by hand; generated pages have tests of their own.
HAND_WRITTEN = [path for path in (ROOT / "docs").glob("*.md") if path.name != "conformance.md"]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "BENCHMARKS.md",
        ROOT / "SECURITY.md",
        *HAND_WRITTEN,
        *(ROOT / "docs" / "pipeline").glob("*.md"),
    ]
)

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
EXPORT = re.compile(r"^export ((?:[A-Z_]+=\S+ ?)+)$")
SUM = re.compile(r"\$\(\((\w+) \+ (\d+)\)\)")
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
OPERATORS = frozenset({"|", "||", "&", "&&", ";", "(", ")", "{", "}"})
REDIRECTIONS = frozenset({">", ">>", "<", ">&", "<&"})
WORDS_BEFORE = frozenset({"do", "then", "else", "until", "while", "if", "time", "!"})


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language."""
    return [body for kind, body in FENCE.findall(page.read_text(encoding="utf-8")) if kind == language]


def commands(page: Path) -> Iterator[list[str]]:
    """The arguments of every `folkmoot ...` that a transcript of the page runs, with what it exports put in."""
    exported: dict[str, str] = {}
    for block in blocks(page, "console"):
        for line in block.replace("\\\n", " ").splitlines():
            if not line.startswith("$ "):
                continue
            if found := EXPORT.match(line[2:]):
                for word in found[1].split():
                    name, _, value = expanded(word, exported).partition("=")
                    exported[name] = value
                continue
            for words in simple_commands(expanded(line[2:], exported)):
                if words[0].rpartition("/")[2] == "folkmoot":
                    yield words[1:]


def expanded(line: str, exported: dict[str, str]) -> str:
    """A line of shell with the values of exported variables, and with sums of them and numbers."""
    line = SUM.sub(lambda found: str(int(exported.get(found[1], "0")) + int(found[2])), line)
    for name, value in exported.items():
        line = re.sub(rf"\${name}\b", value, line)
    return line


def simple_commands(line: str) -> list[list[str]]:
    """A line of shell as its simple commands, without redirections, assignments and the words of the shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    skip = False
    for token in lexer:
        words = found[-1]
        if skip:
            skip = False
        elif token in REDIRECTIONS:
            skip = True
            if words and words[-1].isdigit():
                words.pop()
        elif token in OPERATORS:
            found.append([])
        elif words or not (token in WORDS_BEFORE or ASSIGNMENT.match(token)):
            words.append(token)
    return [words for words in found if words]


def links(page: Path) -> list[str]:
    """The targets of all links that stay within the project."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return [target for target in LINK.findall(text) if not re.match(r"[a-z]+:", target)]


def images(page: Path) -> list[str]:
    """The targets of all pictures."""
    return IMAGE.findall(page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The names by which links reach the headings of a page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
