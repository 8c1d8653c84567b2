"""Ways to edit a kernel's text: each finds its place exactly once, or raises ValueError."""

import re
from collections.abc import Callable

Edit = Callable[[str], str]


def _place(text: str, words: str, after: str) -> int:
    """Where ``words`` begin: the only place, or with ``after`` the first one behind that."""
    if not after:
        if text.count(words) != 1:
            raise ValueError(f"{words!r} occurs {text.count(words)} times")
        return text.index(words)
    if after not in text or words not in text[text.index(after) :]:
        raise ValueError(f"no {words!r} behind {after!r}")
    return text.index(words, text.index(after))


def _line(text: str, words: str, after: str) -> tuple[int, int, str]:
    """Where the line with ``words`` begins and ends, and how it is indented."""
    place = _place(text, words, after)
    begin = text.rindex("\n", 0, place) + 1
    end = text.index("\n", place) + 1
    indent = re.match(" *", text[begin:])
    assert indent is not None
    return begin, end, indent[0]


def changed(old: str, new: str, after: str = "") -> Edit:
    """``old`` becomes ``new``."""

    def edit(text: str) -> str:
        place = _place(text, old, after)
        return text[:place] + new + text[place + len(old) :]

    return edit


def dropped(statement: str, after: str = "") -> Edit:
    """The statement becomes ``pass``."""

    def edit(text: str) -> str:
        begin, end, indent = _line(text, statement, after)
        return f"{text[:begin]}{indent}pass\n{text[end:]}"

    return edit


def everywhere(old: str, new: str, times: int) -> Edit:
    """``old`` becomes ``new`` at so many places."""

    def edit(text: str) -> str:
        if text.count(old) != times:
            raise ValueError(f"{old!r} occurs {text.count(old)} times")
        return text.replace(old, new)

    return edit


def guarded(statement: str, condition: str, after: str = "") -> Edit:
    """The statement is done under a condition only."""

    def edit(text: str) -> str:
        begin, end, indent = _line(text, statement, after)
        body = text[begin:end].replace(indent, indent + "    ", 1)
        return f"{text[:begin]}{indent}if {condition}:\n{body}{text[end:]}"

    return edit


def moved(statement: str, before: str, after: str = "") -> Edit:
    """The statement goes before the line with ``before``, both found behind ``after``."""

    def edit(text: str) -> str:
        begin, end, indent = _line(text, statement, after)
        rest = text[:begin] + text[end:]
        line = text[begin:end].removeprefix(indent)
        place, _, indent = _line(rest, before, after)
        return rest[:place] + indent + line + rest[place:]

    return edit


def added(line: str, before: str, after: str = "") -> Edit:
    """A line more, before the one with ``before``."""

    def edit(text: str) -> str:
        place, _, indent = _line(text, before, after)
        lines = "".join(f"{indent}{part}\n" for part in line.split("\n"))
        return text[:place] + lines + text[place:]

    return edit


def together(*edits: Edit) -> Edit:
    """One after the other."""

    def edit(text: str) -> str:
        for part in edits:
            text = part(text)
        return text

    return edit
