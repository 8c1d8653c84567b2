"""Tables on narrow screens: what is left out, and what never is."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from tileyard.show.console import Console as TileyardConsole
from tileyard.show.console import name_parameters, new_table, print_table

COLUMNS = ("trial", "target", "config", "note", "message")
ROWS = (
    ("r.1", "cuda:sm_90a", "block_M=128 block_N=64", "", ""),
    ("r.2", "cuda:sm_90a", "block_M=64 block_N=256", "", "the result of output C is wrong"),
)


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


def show(
    width: int, *rows: tuple[str, ...], is_terminal: bool = False, joins_equal: bool = False
) -> list[str]:
    """The lines of a table on a screen of that width."""
    file = io.StringIO()
    table = new_table(COLUMNS, left=COLUMNS)
    for row in rows:
        table.add_row(*row)
    console = Console(file=file, width=width, force_terminal=is_terminal, color_system=None)
    print_table(console, table, cut="message", joins_equal=joins_equal)
    return file.getvalue().splitlines()


def test_a_table_that_fits_has_all_columns() -> None:
    """Empty ones and those with one value, too."""
    head, first, _ = show(120, *ROWS)
    assert head.split() == list(COLUMNS)
    assert "cuda:sm_90a" in first


@pytest.mark.parametrize(("width", "has_target"), [(70, True), (60, False), (20, False)])
def test_a_narrow_table_leaves_out_what_is_equal_in_all_rows(width: int, has_target: bool) -> None:
    """Empty columns first, then those with one value, which a line below names; values are whole."""
    lines = show(width, *ROWS)
    assert "note" not in lines[0]
    assert ("target" in lines[0]) == has_target
    assert [line.strip() for line in lines[3:]] == (
        [] if has_target else ["the same in all rows: target=cuda:sm_90a"]
    )
    assert all(row[2] in line for row, line in zip(ROWS, lines[1:3], strict=True))
    assert lines[2].endswith(ROWS[1][4])


def test_equal_columns_are_left_out_at_any_width() -> None:
    """Where the table asks for it: a log has the same columns as a terminal."""
    assert show(60, *ROWS, joins_equal=True) == show(200, *ROWS, joins_equal=True)


def test_measured_columns_stay_even_if_all_rows_are_equal_by_chance() -> None:
    """At any width; a line below the table names the others."""
    for width in (20, 200):
        file = io.StringIO()
        table = new_table(("config", "latency", "outcome"), left=())
        table.add_row("block=32", "1.57 us", "passed")
        table.add_row("block=64", "1.57 us", "passed")
        console = Console(file=file, width=width)
        print_table(console, table, joins_equal=True)
        words = file.getvalue().split()
        assert words.count("1.57") == 2
        assert " ".join(words).endswith("the same in all rows: outcome=passed")


MANY = {f"parameter_{n}": n for n in range(7)} | {"latency": 9, "outcome": 1, "note": 2}
"""Ten parameters; some are called as columns with results are."""


def show_boxed(width: int) -> list[str]:
    """The lines of a table with a border, two rows and a parameter for each of MANY."""
    results = ("latency", "outcome")
    named = name_parameters(MANY, results)
    table = Table()
    for header in (*named, *results):
        table.add_column(header, no_wrap=True)
    for add in (0, 1):
        table.add_row(*(str(value + add) for value in MANY.values()), f"{add} us", "passed")
    file = io.StringIO()
    print_table(Console(file=file, width=width), table, folded=named, joins_equal=True)
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [200, 80, 60, 44, 20])
def test_a_border_is_whole_or_is_left_out(width: int) -> None:
    """Parameters without room for their own columns share one; each keeps its name and value."""
    lines = show_boxed(width)
    *rows, below = lines
    assert below == "the same in all rows: outcome=passed"
    assert any(line.startswith("│") for line in rows) is (width > 20)
    if width > 20:
        assert {len(line) for line in rows} == {len(rows[0])}
        assert len(rows[0]) <= width
    words = " ".join(rows).split()
    if width == 200:
        assert [words.count(name) for name in ("config_latency", "latency", "note")] == [1, 1, 1]
        assert words.count("config_outcome") == 1
    else:
        pairs = {f"{name}={value + add}" for name, value in MANY.items() for add in (0, 1)}
        assert pairs <= set(words)
        assert words.count("config") == 1


NAMES = ("spills", "shared", "message")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_only_long_text_is_broken(is_terminal: bool) -> None:
    """Neither a header nor a value with its unit; a column that can be spared gives its room before that."""
    file = io.StringIO()
    table = new_table(NAMES, left=("message",), wrapped=NAMES)
    table.title, table.caption = "a title that is longer than the table", "and so is its caption"
    table.add_row("520 B", "130.0 KiB", "the result of output C is wrong")
    console = Console(file=file, width=20, force_terminal=is_terminal, color_system=None)
    print_table(console, table, spare=("spills",))
    assert [line.strip() for line in file.getvalue().splitlines()] == [
        "a title that is longer than the table",
        "shared  message",
        "130.0 KiB  the",
        *("result", "of", "output", "C is", "wrong"),
        "and so is its caption",
    ]


def test_no_color_is_no_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    """With NO_COLOR a terminal gets neither colours nor bold."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    TileyardConsole(file=file).print("text", style="bold red")
    assert file.getvalue() == "text\n"


def test_on_a_terminal_the_text_of_a_row_ends_with_the_screen() -> None:
    """Each row is one line; the values before the text are whole."""
    lines = show(60, *ROWS, is_terminal=True)
    expected = " r.2    block_M=64 block_N=256  the result of output C is …"
    assert lines[2] == expected
    assert len(lines[2]) < 60


def test_one_row_has_no_equal_columns() -> None:
    """It keeps all of its values."""
    lines = show(20, ROWS[1])
    assert len(lines) == 2
    assert all(cell in lines[1] for cell in ROWS[1])
