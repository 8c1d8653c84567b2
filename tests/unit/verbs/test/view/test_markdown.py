"""What GitHub Actions shows of a suite's run."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.show.suite_results import one_of_each, suite_result, verdict

from tileyard.base.errors import UsageError
from tileyard.base.model import Outcome
from tileyard.verbs.test.result.result import LeftOut
from tileyard.verbs.test.view.markdown import (
    PAGE_BYTES,
    annotations,
    code,
    render_page,
    text,
    write_step_summary,
)
from tileyard.verbs.test.view.words import rerun_command

PAGE = """
## Suite ops: failed

7 cases in 3 min 20 s, policy nightly, run r

**1 case failed, 1 case never ran, 1 case met faults of devices, queues or hosts**

**the quarantine of row/&#42; ended on 2026-11-01&#58; 2 cases gate again**

| outcome | cases |
| --- | --- |
| passed | 2 |
| mismatch | 2 |
| infra_error | 1 |
| skipped | 1 |
| not_run | 1 |
| of these flaky | 1 |
| left out | 8 |

100 min 0 s of work on 64 slots; lower bound max(longest piece, total/slots) 100 s, \
predicted 104 s, achieved 110 s; gap 10 s, 10.0%&#58; 4.0 s before the first case could start

### Failed (2)

| outcome | case | message | run it again |
| --- | --- | --- | --- |
| mismatch | <code>row/f16</code> | y&#91;3, 4&#93; is 1.0, expected 2.0; 12 of 4096 elements \
are wrong (0.293 %) | <code>tileyard test ops.toml --case row/f16</code> |
| infra_error | <code>cast/f4</code> | slot&#58;3 went away | \
<code>tileyard test ops.toml --case cast/f4</code> |

### In quarantine, failed, not counted (1)

| outcome | case | message | owner | until | reason |
| --- | --- | --- | --- | --- | --- |
| mismatch | <code>cast/f8</code> | y&#91;0&#93; is 1, expected 2 | ana | 2026-12-01 | \
rounds to even since 2.4 |

### Flaky (1)

| case | attempts | failed with |
| --- | --- | --- |
| <code>col/f16</code> | 2 | crashed&#58; died of SIGBUS |

<details><summary>Never ran (1)</summary>
<ul>
<li>1: the run ended before this case was reached: <code>sort/i8</code></li>
</ul>
</details>

**Families without a run:** <code>gemm</code>, <code>softmax</code>

<details><summary>Left out (8)</summary>
<ul>
<li>7: not in the smoke run: <code>gemm/big0</code>, <code>gemm/big1</code>, \
<code>gemm/big2</code>, <code>gemm/big3</code>, <code>gemm/big4</code>, ...</li>
<li>1: skip list&#58; takes a day: <code>gemm/tiny</code></li>
</ul>
</details>

### Longest (5)

| case | time | share |
| --- | --- | --- |
| <code>row/f16</code> | 30 s | 85.7% |
| <code>row/f32</code> | 1.0 s | 2.9% |
| <code>col/f16</code> | 1.0 s | 2.9% |
| <code>col/f32</code> | 1.0 s | 2.9% |
| <code>cast/f8</code> | 1.0 s | 2.9% |
"""


def test_the_page_tells_all_that_can_happen(tmp_path: Path) -> None:
    """It is appended to what earlier steps wrote."""
    path = tmp_path / "page.md"
    path.write_text("before\n")
    write_step_summary(one_of_each(), path, rerun_command("ops.toml"))
    assert path.read_text() == "before\n" + PAGE


def test_a_page_never_grows_beyond_what_github_takes(tmp_path: Path) -> None:
    """It is cut between two rows and says so; where there is no room at all nothing is written."""
    path = tmp_path / "page.md"
    failed = [verdict(f"t/c{i}", Outcome.CRASHED, message=f"{i}{'|' * 1000}") for i in range(300)]
    expected = "\n\nThere was no room for the rest of this page.\n"
    for used in (0, PAGE_BYTES - 5000, PAGE_BYTES - 10, PAGE_BYTES, PAGE_BYTES + 10):
        path.write_text("x" * used)
        write_step_summary(suite_result(*failed), path)
        size = path.stat().st_size
        assert size <= max(PAGE_BYTES, used)
        if used == PAGE_BYTES - 5000:
            assert path.read_text().endswith(f"</code> |\n{expected}")
        elif used:
            assert size == used


def test_a_page_that_was_cut_always_says_so(tmp_path: Path) -> None:
    """Wherever the room ends, the last line tells of it."""
    path = tmp_path / "page.md"
    failed = [verdict(f"t/c{i}", Outcome.CRASHED, message=f"m{i}") for i in range(9)]
    result = suite_result(*failed)
    expected = "\n\nThere was no room for the rest of this page.\n"
    for room in range(60, 900, 7):
        path.write_text("x" * (PAGE_BYTES - room))
        write_step_summary(result, path)
        assert path.stat().st_size <= PAGE_BYTES
        assert path.read_text().endswith(expected)


def test_what_cases_did_wrong_comes_before_what_was_done_to_them(tmp_path: Path) -> None:
    """Faults of devices stand below failures, whatever their order in the suite."""
    path = tmp_path / "page.md"
    lost = verdict("t/lost", Outcome.INFRA_ERROR, message="m")
    write_step_summary(suite_result(lost, verdict("t/bad", Outcome.CRASHED, message="m")), path)
    expected = ["t/bad", "t/lost"]
    assert re.findall(r"^\| \w+ \| <code>(t/\w+)", path.read_text(), re.MULTILINE)[:2] == expected


def test_many_failures_are_cut_and_counted(tmp_path: Path) -> None:
    """Two hundred rows are shown, and the rest is a number."""
    path = tmp_path / "page.md"
    failed = [verdict(f"t/c{i}", Outcome.CRASHED, message=f"m{i}") for i in range(300)]
    write_step_summary(suite_result(*failed), path)
    page = path.read_text()
    expected = "\nand 100 more\n"
    assert page.count("| crashed | <code>") == 200
    assert expected in page


def test_a_page_of_a_run_without_trouble_is_short(tmp_path: Path) -> None:
    """Only its heading and the counts."""
    path = tmp_path / "page.md"
    write_step_summary(suite_result(verdict("t/a", Outcome.PASSED)), path)
    expected = (
        "\n## Suite ops: passed\n\n1 case in 3 min 20 s, policy full, run r\n\n"
        "| outcome | cases |\n| --- | --- |\n| passed | 1 |\n"
    )
    assert path.read_text() == expected


def test_a_page_that_cannot_be_written_is_the_users_to_fix(tmp_path: Path) -> None:
    """The message names the path."""
    expected = f"cannot write {tmp_path}: Is a directory"
    with pytest.raises(UsageError, match=re.escape(expected)):
        write_step_summary(one_of_each(), tmp_path)


def test_annotations_stand_at_the_lines_of_cases() -> None:
    """Failures and faults are errors, what does not gate is a warning, what never ran a notice."""
    lines = annotations(one_of_each(), Path("/suites"), rerun_command("ops.toml"))
    expected = [
        "::error file=ops.toml,line=7,title=mismatch%3A row/f16::y[3, 4] is 1.0, expected 2.0; "
        "12 of 4096 elements are wrong (0.293 %25)%0Atileyard test ops.toml --case row/f16",
        "::error file=ops.toml,line=12,title=infra_error%3A cast/f4::slot:3 went away"
        "%0Atileyard test ops.toml --case cast/f4",
        "::warning file=ops.toml,line=12,title=mismatch in quarantine%3A cast/f8::"
        "y[0] is 1, expected 2%0Atileyard test ops.toml --case cast/f8",
        "::warning file=ops.toml,line=12,title=flaky%3A col/f16::"
        "crashed, then passed: died of SIGBUS%0Atileyard test ops.toml --case col/f16",
        "::notice title=ops::1 case of suite ops never ran",
    ]
    assert lines == expected


def test_a_case_without_a_place_is_annotated_all_the_same() -> None:
    """GitHub shows it at the job; a path outside of the checkout stays as it is."""
    here = verdict("t/a", Outcome.CRASHED, message="100% wrong")
    nowhere = msgspec.structs.replace(here, where="")
    first, second = annotations(suite_result(nowhere, here), Path("/elsewhere"))
    expected = ("::error title=crashed%3A t/a::100%25 wrong%0A", "::error file=/suites/ops.toml,")
    assert first.startswith(expected[0])
    assert second.startswith(expected[1])


def test_github_shows_ten_of_a_level() -> None:
    """The rest of each level is one notice."""
    failed = [verdict(f"t/c{i}", Outcome.CRASHED, message=f"m{i}") for i in range(1000)]
    spared = [verdict(f"t/s{i}", Outcome.CRASHED, message=f"m{i}", spared=True) for i in range(11)]
    lines = annotations(suite_result(*failed, *spared))
    levels = [line.split(" ")[0] for line in lines]
    expected = ["::error"] * 10 + ["::notice"] + ["::warning"] * 10 + ["::notice"]
    assert levels == expected
    assert lines[10] == "::notice title=ops::990 more errors of suite ops: see its report"
    assert lines[-1] == "::notice title=ops::1 more warning of suite ops: see its report"


def test_equal_failures_are_one_row_and_one_annotation(tmp_path: Path) -> None:
    """With the number of cases, their names, and the message and the command of the first."""
    same = [verdict(f"t/c{i}", Outcome.COMPILE_ERROR, message="m.cpp:3: no") for i in range(79)]
    two = [verdict(f"u/c{i}", Outcome.CRASHED, message="died") for i in range(2)]
    path = tmp_path / "page.md"
    write_step_summary(suite_result(*same, *two), path, rerun_command("s"))
    rows = [line for line in path.read_text().splitlines() if line.startswith("| compile_error |")]
    named = ", ".join(f"<code>t/c{i}</code>" for i in range(50))
    expected = (
        f"| compile_error | 79 cases, the same message: {named} and 29 more "
        "| m.cpp&#58;3&#58; no | <code>tileyard test s --case t/c0</code> |"
    )
    assert rows[1:] == [expected]
    assert path.read_text().count("| crashed | <code>u/c") == 2
    lines = annotations(suite_result(*same, *two), Path("/suites"), rerun_command("s"))
    names = ", ".join(f"t/c{i}" for i in range(50))
    assert lines[0] == (
        "::error file=ops.toml,line=12,title=compile_error%3A 79 cases::"
        f"79 cases, the same message: m.cpp:3: no%0A{names} and 29 more%0Atileyard test s --case t/c0"
    )
    assert len(lines) == 3


def test_a_compile_error_is_annotated_where_the_compiler_saw_it(tmp_path: Path) -> None:
    """In a file of the suite, relative to the checkout; for others at the line that declares the case."""
    (tmp_path / "a.cpp").touch()
    seen, declared = f"{tmp_path.name}/a.cpp,line=7", "/suites/ops.toml,line=12"
    for message, expected in (
        ("sh ended with exit code 2: ./a.cpp:7:8: error: no", seen),
        (f"sh ended with exit code 2: {tmp_path}/a.cpp:7: error: no", seen),
        ("sh ended with exit code 2: b.cpp:7:8: error: no", declared),
        ("sh ended with exit code 2: /usr/include/math.h:7: error: no", declared),
    ):
        bad = verdict("t/c", Outcome.COMPILE_ERROR, message=message)
        result = msgspec.structs.replace(suite_result(bad), path=str(tmp_path / "suite.toml"))
        (line,) = annotations(result, tmp_path.parent)
        assert line.startswith(f"::error file={expected},title=")


texts = st.text(st.characters(), max_size=80) | st.text("%\r\n:,|<>`*_\\\x1b#@", max_size=20)


@pytest.mark.slow
@given(message=texts, where=texts, name=texts, suite=texts)
def test_no_text_breaks_an_annotation(message: str, where: str, name: str, suite: str) -> None:
    """Each is one line of one command; its properties and its message can be read back."""
    bad = verdict("t/a", Outcome.CRASHED, message=message)
    odd = msgspec.structs.replace(bad, case=f"t/{name}", where=f"{where}:3")
    result = suite_result(*[odd] * 11)
    for line in annotations(msgspec.structs.replace(result, suite=suite, path="s")):
        assert line.isprintable()
        assert re.fullmatch(
            r"::(error|notice) ((file|line|title)=[^,:]*,?)+::([^%]|%25|%0A|%0D)*", line
        )


@pytest.mark.slow
@given(texts)
def test_no_text_breaks_a_cell(words: str) -> None:
    """It stays on its line and in its column, and shows as what it is."""
    for shown in (text(words, limit=0), code(words)):
        plain = shown.removeprefix("<code>").removesuffix("</code>")
        assert not set("\r\n|`*_<>[]\\") & set(plain)
        assert "\x1b" not in plain
        assert re.sub(r"&(?!#\d+;)", "", plain) == plain


@pytest.mark.slow
@given(st.lists(texts, min_size=1, max_size=5))
def test_no_reason_breaks_the_list_of_what_was_left_out(reasons: list[str]) -> None:
    """HTML ends at an empty line, so there is none in it."""
    left_out = tuple(LeftOut(case=f"t/{r}", reason=r) for r in reasons)
    result = msgspec.structs.replace(suite_result(), left_out=left_out)
    (block,) = [block for block in render_page(result) if "<details>" in block]
    assert "\n\n" not in block.strip()
    assert block.count("<li>") == block.count("</li>") == len(set(reasons))
