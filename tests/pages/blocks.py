"""The blocks of code that pages show, and the commands in them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

SHELL = ("sh", "console")
MARKS = ("run", "root", "gpu", "illustrative")
"""What follows the language of a block of commands: whether a test runs them, or what they would need."""
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "tests/**/*.md")
    for path in ROOT.glob(pattern)
)

_FENCE = re.compile(r"^( *)```(\w*)([^\n]*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of code: the line on which it begins, its language, the words behind that, its text."""

    page: Path
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def place(self) -> str:
        """The page and the line."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Step:
    """A command, and what the page shows that it prints: nothing where it shows nothing."""

    command: str
    shown: tuple[str, ...] = ()


def list_blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order."""
    text = page.read_text("utf-8")
    for match in _FENCE.finditer(text):
        indent, language, words, code = match.groups()
        code = re.sub(f"(?m)^{indent}", "", code)
        line = text.count("\n", 0, match.start()) + 1
        yield Block(page, line, language, tuple(words.split()), code)


def blank_blocks(page: Path) -> str:
    """A page without its blocks of code, each of their lines left empty."""
    return _FENCE.sub(lambda match: "\n" * match[0].count("\n"), page.read_text("utf-8"))


def list_steps(block: Block) -> Iterator[Step]:
    """The commands of a block: of a console those behind a prompt, with what follows; else each line."""
    text = re.sub(r"\\\n\s*", " ", block.text)
    if block.language == "sh":
        yield from (Step(line) for line in text.splitlines() if line.strip())
        return
    for part in re.split(r"(?m)^\$ ", text)[1:]:
        command, *shown = part.rstrip("\n").split("\n")
        yield Step(command, tuple(shown))
