"""The steps before a mistake as lanes of at most 80 columns."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tileyard.base.model import SourceLine
from tileyard.ir.nodes import Unit
from tileyard.sync.findings import Finding, TimelineStep
from tileyard.verbs.check.view.findings import draw_timeline

RACE = Finding(
    kind="race", message="m", fix="f", buffer="a", other=SourceLine(file="/k.py", line=3)
)
UNITS: list[Unit] = ["cp_async", "tma", "tma_store", "wgmma"]


def step(role: int, line: int, text: str, mark: int = 0, unit: str = "") -> TimelineStep:
    """One step."""
    made = {"role": role, "unit": unit, "line": line, "text": text, "mark": mark}
    return msgspec.convert(made, TimelineStep)


def draw(*steps: TimelineStep, finding: Finding = RACE) -> list[str]:
    """The lines of a finding with these steps."""
    return list(draw_timeline(msgspec.structs.replace(finding, timeline=steps)))


def test_each_role_and_unit_has_a_lane() -> None:
    """Steps are in their order, with their lines, and the two sides are marked."""
    shown = draw(
        step(1, 22, "wait free[0] p1"),
        step(1, 23, "issue tma a[0]", 1),
        step(2, 38, "read a[0]", 2),
        step(1, 23, "a[0] arrives", unit="tma"),
    )
    assert shown == [
        "   role 1                  | role 1: tma             | role 2",
        "   22 wait free[0] p1      |                         |",
        "1> 23 issue tma a[0]       |                         |",
        "2>                         |                         | 38 read a[0]",
        "                           | 23 a[0] arrives         |",
        "   1> is the earlier of the two accesses, 2> the later one; numbers are lines",
    ]


def test_a_long_way_between_the_sides_is_cut() -> None:
    """Both are shown, and what is around them."""
    steps = [step(0, n, f"step {n}", {20: 1, 99: 2}.get(n, 0)) for n in range(1, 100)]
    shown = draw(*steps)
    assert shown[1].strip() == "16 step 16"
    assert shown[5] == "1> 20 step 20"
    assert shown.count("   ...") == 1
    assert shown[-2] == "2> 99 step 99"
    assert len(shown) < 30


def test_a_name_that_is_too_long_keeps_its_stage() -> None:
    """Which says more than the middle of the name."""
    steps = [step(role, 5, f"issue tma a_tile_with_a_long_name[{role}]", 1) for role in range(5)]
    assert "5 issue ~e[3]" in draw(*steps)[4]


def test_a_deadlock_has_one_mark() -> None:
    """There is no other side."""
    stuck = msgspec.structs.replace(RACE, kind="deadlock", other=None)
    shown = draw(step(0, 7, "waits full for ever", 2), finding=stuck)
    assert shown[1:] == [
        "2> 7 waits full for ever",
        "   2> is where it was found; numbers are lines",
    ]


def test_without_steps_nothing_is_drawn() -> None:
    """As where nobody asked for them."""
    assert draw() == []


@given(
    st.lists(
        st.builds(
            step,
            st.integers(0, 9),
            st.integers(0, 99999),
            st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=90),
            st.sampled_from([0, 0, 1, 2]),
            st.sampled_from(["", *UNITS]),
        ),
        max_size=60,
    )
)
def test_no_line_is_wider_than_a_terminal(steps: list[TimelineStep]) -> None:
    """Whatever the names and however many roles there are; and all is ASCII."""
    lines = draw(*steps)
    assert all(len(line) <= 80 and line.isascii() for line in lines)
