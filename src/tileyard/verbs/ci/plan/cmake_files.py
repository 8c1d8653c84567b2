"""Reads the calls of a CMakeLists.txt: their words, blocks, and the conditions that are known."""

import re
from collections.abc import Iterator, Sequence

from tileyard.base.model import Record

LONGEST = 100_000
"""Characters of a text: one that is put into itself grows quickly."""
DEEPEST = 20
"""Maximum depth of calls of functions, loops and subdirectories."""
_TOKEN = re.compile(
    r"#?\[(?P<level>=*)\[(?P<raw>.*?)\](?P=level)\]|#[^\n]*"
    r'|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<sign>[()])|(?P<word>(?:[^\s()"#\\]|\\.|(?<=\S)"[^"]*")+)',
    re.DOTALL,
)
_VARIABLE = re.compile(r"\$\{([\w.+/-]+)\}")


class Call(Record):
    """A call of a command: its words, each with whether it was quoted."""

    name: str
    words: tuple[tuple[str, bool], ...]


def parse_calls(text: str) -> Iterator[Call]:
    """The calls of a file."""
    name, depth, words = "", 0, list[tuple[str, bool]]()
    for found in _TOKEN.finditer(text):
        quoted = found["quoted"] if found["raw"] is None else found["raw"]
        if found[0].startswith("#"):
            continue
        if found["sign"] == "(":
            depth, words = depth + 1, words if depth else []
        elif found["sign"] == ")":
            depth -= 1
            if not depth:
                yield Call(name=name.lower(), words=tuple(words))
        elif depth:
            words.append((found["word"] or quoted or "", found["word"] is None))
        else:
            name = found["word"] or ""


def expand_words(call: Call, known: dict[str, str]) -> list[str]:
    """The arguments of a call: a list that is not quoted is as many as it has elements."""
    expanded: list[str] = []
    for word, is_quoted in call.words:
        text = _fill(word, known)
        expanded += [text] if is_quoted else [one for one in text.split(";") if one]
    return expanded


def _fill(text: str, known: dict[str, str]) -> str:
    """A text with the values of its variables; those that are not known stay."""
    for _ in range(1 + min(text.count("${${"), DEEPEST)):
        text = _VARIABLE.sub(lambda found: known.get(found[1], found[0]), text)[:LONGEST]
    return text.replace('\\"', '"')


def list_values(words: Sequence[str], known: dict[str, str]) -> list[str]:
    """What a loop runs over; a list that is not known gives one turn whose value is not known."""
    if words[1:2] == ["RANGE"]:
        return [f"${{{words[0]}}}"]
    if words[1:2] != ["IN"]:
        return list(words[1:])
    values, is_list = list[str](), False
    for word in words[2:]:
        if word in ("LISTS", "ITEMS", "ZIP_LISTS"):
            is_list = word != "ITEMS"
        else:
            values += known.get(word, f"${{{word}}}").split(";") if is_list else [word]
    return [one for one in values if one]


def merge_values(values: Sequence[str], name: str) -> str:
    """A variable after branches of which any may be taken: a list that they extend is extended."""
    longest, shortest = max(values, key=len), min(values, key=len)
    is_list = bool(shortest) and all(f"{longest};".startswith(f"{one};") for one in values)
    return longest if is_list or len({*values}) == 1 else f"${{{name}}}"


def list_branches(calls: Sequence[Call]) -> Iterator[tuple[int, Call]]:
    """The calls that begin the branches of the first one, with their places."""
    depth = 0
    for number, call in enumerate(calls):
        depth += (call.name == "if") - (call.name == "endif")
        if depth == 1 and call.name in ("if", "elseif", "else"):
            yield number, call


def is_taken(call: Call, known: dict[str, str]) -> bool | None:
    """Whether a branch is taken; None if only a configured build knows."""
    words = [word for word, _ in call.words if word not in "()"]
    parts = " ".join(words).split(" AND ")
    found = {_decide(part.split(), known) for part in parts} if words else {True}
    return False if False in found else None if None in found else True


def _decide(words: Sequence[str], known: dict[str, str]) -> bool | None:
    is_negated = words[:1] == ["NOT"]
    rest = words[1:] if is_negated else words
    text = known.get(rest[0], rest[0]).upper() if len(rest) == 1 else "?"
    if text in ("1", "ON", "YES", "TRUE", "Y"):
        return not is_negated
    return is_negated if text in ("", "0", "OFF", "NO", "FALSE", "N") else None


def find_end(calls: Sequence[Call], at: int, name: str) -> int:
    """Where the block ends that begins before ``at``."""
    depth = 1
    for number in range(at, len(calls)):
        depth += (calls[number].name == name) - (calls[number].name == f"end{name}")
        if not depth:
            return number
    return len(calls)
