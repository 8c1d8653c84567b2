"""Lines of keys against the standard library's parser, over documents in every way TOML writes them."""

import json
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileyard.base.places import KeyPath, key_lines

DOCUMENT = '''
name = "x"
list = ["a", # , ] "
  "b"]
[run]
argv.x = { a = 1, "b c" = [ {d = 1}, {d = 2} ] }
[[testcase]]
name = """
foo\\"""" # ]
[[testcase.case]]
a.b = 1979-05-27 07:32:00
[[testcase.case]]
c = \'\'\'x
y\'\'\'\'
[testcase.run]
z = 1
[[testcase]]
[testcase.run]
q = "a\\"#"
'''


def test_every_form_of_a_table_has_its_line() -> None:
    """Arrays of tables, dotted keys, inline tables and strings over lines do not lead astray."""
    lines = key_lines(DOCUMENT)
    expected = {
        ("name",): 2,
        ("list",): 3,
        ("list", 1): 4,
        ("run",): 5,
        ("run", "argv", "x"): 6,
        ("run", "argv", "x", "b c", 1, "d"): 6,
        ("testcase", 0): 7,
        ("testcase", 0, "name"): 8,
        ("testcase", 0, "case", 0): 10,
        ("testcase", 0, "case", 0, "a", "b"): 11,
        ("testcase", 0, "case", 1, "c"): 13,
        ("testcase", 0, "run"): 15,
        ("testcase", 0, "run", "z"): 16,
        ("testcase", 1): 17,
        ("testcase", 1, "run", "q"): 19,
    }
    assert {path: lines.get(path) for path in expected} == expected


NASTY = st.text(alphabet="ab#\"'[]{}=,.\\\n\t é", max_size=8)
KEYS = st.one_of(st.from_regex(r"[A-Za-z0-9_-]{1,4}", fullmatch=True), NASTY)
SCALARS = st.one_of(
    st.integers(-9, 99).map(str),
    st.sampled_from(["1.5", "-inf", "true", "1979-05-27", "1979-05-27 07:32:00.5", "0xff"]),
    NASTY.map(json.dumps),
    NASTY.map(lambda text: '"""' + json.dumps(text)[1:-1].replace("\\n", "\n") + '"""'),
    st.text(alphabet="ab#[]{}=,\\ ", max_size=6).map(lambda text: f"'{text}'"),
    st.text(alphabet='ab#"[]{}=,\\\n', max_size=8).map(lambda text: f"'''{text}'''"),
)
GAPS = st.sampled_from(["", " ", "\n", " # ] } ' \" \n", "\n\n  "])


def quote(key: str) -> str:
    """A key, bare where it can be."""
    return key if key and key.replace("-", "_").isascii() and is_bare(key) else json.dumps(key)


def is_bare(key: str) -> bool:
    """Whether a key needs no quotes."""
    return all(letter.isalnum() or letter in "_-" for letter in key)


@st.composite
def arrays(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    """An array with gaps and comments between its elements."""
    parts = [draw(GAPS) + value + draw(GAPS) for value in draw(st.lists(values, max_size=3))]
    comma = draw(st.sampled_from(["", ","])) if parts else ""
    return "[" + ",".join(parts) + comma + draw(GAPS) + "]"


@st.composite
def inline_tables(draw: st.DrawFn, values: st.SearchStrategy[str]) -> str:
    """An inline table, some of its keys dotted."""
    keys = draw(st.lists(KEYS, max_size=3, unique=True))
    pairs = []
    for key in keys:
        dotted = quote(key) + draw(st.sampled_from(["", ".x", ' . "y z"']))
        pairs.append(f"{dotted} = {draw(values)}")
    return "{ " + " , ".join(pairs) + " }"


VALUES = st.recursive(SCALARS, lambda inner: st.one_of(arrays(inner), inline_tables(inner)))


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Lines, headers of tables and of arrays of tables, at random; not always valid TOML."""
    parts = []
    for _ in range(draw(st.integers(0, 8))):
        keys = ".".join(quote(key) for key in draw(st.lists(KEYS, min_size=1, max_size=3)))
        form = draw(st.sampled_from(["{} = ", "[{}]", "[[{}]]", "[[ {} ]]"]))
        part = form.format(keys)
        parts.append(part + draw(VALUES) if form.endswith("= ") else part)
        parts.append(draw(st.sampled_from(["\n", " # [x]\n", "\n\n"])))
    return "".join(parts)


def flatten(value: object, path: KeyPath = ()) -> set[KeyPath]:
    """The ways to all that a document holds."""
    found = {path} if path else set()
    if isinstance(value, dict):
        found.update(*(flatten(inner, (*path, key)) for key, inner in value.items()), set())
    elif isinstance(value, list):
        found.update(*(flatten(inner, (*path, n)) for n, inner in enumerate(value)), set())
    return found


@pytest.mark.slow
@given(documents())
def test_the_keys_are_those_that_the_parser_finds(text: str) -> None:
    """Every key has a line, no other has, and a table's line holds the last name of its way."""
    try:
        parsed = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    lines = key_lines(text)
    assert set(lines) == flatten(parsed)
    written = text.split("\n")
    for path, line in lines.items():
        if isinstance(path[-1], str):
            assert path[-1] in written[line - 1] or json.dumps(path[-1]) in written[line - 1]
