"""What is counted for a script, and how it is told."""

import json

from tileyard.base.model import Diagnostic, SourceLine
from tileyard.verbs.exec.plan.tally import Refusal, Tally, summary_json, summary_line


def test_a_kernel_counts_once_however_often_it_is_compiled() -> None:
    """A kernel that was built in this run is not also one that was built before."""
    tally = Tally(2)
    tally.note_kernel("a", is_built=True)
    tally.note_kernel("a", is_built=False)
    tally.note_kernel("b", is_built=False)
    expected = (1, 1)
    assert (tally.summary().built, tally.summary().cached) == expected


def test_a_quiet_summary_tells_kernels_and_launches_only() -> None:
    """What did not happen is not told."""
    tally = Tally(1)
    tally.note_kernel("a", is_built=True)
    tally.note_launch()
    expected = "1 kernel built, 0 built before, 1 launch on 1 CPU core"
    assert summary_line(tally.summary()) == expected


def test_a_summary_names_what_was_refused_promoted_and_timed() -> None:
    """Each part has its place in the line, and a refusal counts once."""
    tally = Tally(4)
    for _ in range(2):
        tally.note_refusal(Refusal(kernel="k", message="no", operation="ptx", file="a.py", line=3))
        tally.note_promotion("mm")
        tally.note_timer("do_bench")
    expected = (
        "0 kernels built, 0 built before, 0 launches on 4 CPU cores; refused: k;"
        " 2 half-precision operations of torch computed in f32;"
        " times are those of this CPU (do_bench)"
    )
    assert summary_line(tally.summary()) == expected


def test_a_summary_for_programs_says_the_same() -> None:
    """Its JSON has the refusals with their lines."""
    tally = Tally(4)
    tally.note_refusal(Refusal(kernel="k", message="no", operation="ptx", file="a.py", line=3))
    expected = [{"kernel": "k", "message": "no", "operation": "ptx", "file": "a.py", "line": 3}]
    assert json.loads(summary_json(tally.summary()))["refused"] == expected


def test_notes_about_a_kernel_count_once_for_each_line() -> None:
    """A script may compile it for many sizes."""
    tally = Tally(1)
    for rows in (8, 16):
        where = SourceLine(file="/k.py", line=3)
        tally.note_lines("k", [Diagnostic(message=f"wraps at {rows}", where=where)])
    assert tally.summary().notes == ("note: /k.py:3: wraps at 8",)
