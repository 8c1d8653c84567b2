"""Results of verbs as Python and notebooks show them: short, and without control sequences."""

import io

import msgspec
import pytest
from tests.unit.show.suite_results import one_of_each
from tests.unit.verbs.regress.plan.sides import timed

from tileyard.api.kernels import printed_on
from tileyard.api.shown import (
    NOTEBOOK_LINES,
    Shown,
    ShownBuilds,
    ShownChecks,
    ShownPrediction,
    ShownRegression,
    ShownSuite,
    make_shown,
)
from tileyard.artifacts.manifest import Build
from tileyard.base.model import Outcome, Record, SourceLine
from tileyard.show.console import Console
from tileyard.sync.findings import Finding
from tileyard.verbs.check.view.findings import NotChecked, SyncReport
from tileyard.verbs.regress.result import Regression
from tileyard.verbs.test.plan.plan import predict
from tileyard.verbs.test.result.result import Expected
from tileyard.verbs.tune.result import CompileResult
from tileyard.workers.protocol import SyncChecked

ESCAPE = "\x1b[31mred"
"""What a terminal would take for a colour, in names and messages of others."""


def make_builds() -> CompileResult:
    """One config of each kind."""
    passed = Build(outcome=Outcome.PASSED, config={"block": 1})
    refused = Build(outcome=Outcome.COMPILE_ERROR, config={"block": 2}, message=f"{ESCAPE}\nline 2")
    large = msgspec.structs.replace(refused, exceeds="threads")
    return CompileResult(
        run="r",
        kernel="gemm",
        arguments={},
        target="cuda:sm_90a",
        space=3,
        configs=(passed, refused, large),
        notes=(ESCAPE,),
    )


def make_checks(count: int) -> SyncReport:
    """So many mistakes in one kernel."""
    finding = Finding(
        kind="race",
        message=f"reads what is written {ESCAPE}",
        fix="wait before it",
        buffer="A",
        access=SourceLine(file="k.py", line=7),
    )
    checked = SyncChecked(
        kernel="gemm", config={}, blocks=4, grid=4, findings=(finding,) * count, unchecked=()
    )
    return SyncReport(
        file="k.py", kernels=(checked,), not_checked=(NotChecked(kernel="b", reason=ESCAPE),)
    )


def make_regression() -> Regression:
    """One slower kernel."""
    return Regression(
        run="r",
        target="cpu",
        device="cpu:0",
        silicon="a CPU",
        base=f"main {ESCAPE}",
        head="here",
        margin=0.02,
        rows=(timed("slow", "regressed", 1.03, 1.04, 1.05),),
    )


ALL: list[tuple[type[Shown], Record, str]] = [
    (
        ShownBuilds,
        make_builds(),
        "<builds of gemm for cuda:sm_90a: 1 passed, 1 compile_error, 1 too large (threads)>",
    ),
    (ShownChecks, make_checks(2), "<check of k.py: 2 mistakes in 1 config, 1 not checked>"),
    (
        ShownSuite,
        one_of_each(),
        "<suite ops, run r: 2 passed, 2 mismatch, 1 infra_error, 1 skipped, 1 not_run; 1 case failed, "
        "1 case never ran, 1 case met faults of devices, queues or hosts>",
    ),
    (
        ShownRegression,
        make_regression(),
        r"<regress main \x1b[31mred here: 1 kernel slower by more than 2 %, allowed>",
    ),
    (
        ShownPrediction,
        predict([Expected(case="t/a", testcase="t", seconds=600.0)], 2),
        "<plan of 1 case on 2 slots: 10 min 0 s>",
    ),
]


@pytest.mark.parametrize(("kind", "result", "line"), ALL, ids=[kind.__name__ for kind, *_ in ALL])
def test_a_result_is_a_line_and_in_a_notebook_what_the_command_prints(
    kind: type[Shown], result: Record, line: str
) -> None:
    """Nothing that a terminal would obey is in either; the record is the same."""
    shown = make_shown(kind, result)
    assert isinstance(shown, type(result))
    assert msgspec.json.encode(shown) == msgspec.json.encode(result)
    assert (repr(shown), str(shown)) == (line, line)
    page = shown._repr_html_()
    assert page.startswith("<pre style=")
    assert "\x1b" not in page + repr(shown)


def test_a_notebook_shows_few_lines_of_many_mistakes() -> None:
    """And how to read the rest."""
    page = make_shown(ShownChecks, make_checks(500))._repr_html_()
    assert "and 442 more lines: tileyard check k.py" in page
    assert page.count("\n") < 3 * NOTEBOOK_LINES
    assert "more line" not in make_shown(ShownChecks, make_checks(3))._repr_html_()


def test_a_result_is_printed_where_its_value_is_not_displayed() -> None:
    """A terminal prints it; a notebook displays the returned value, once."""
    console = Console(file=io.StringIO())
    assert printed_on(console) is console
    console.is_jupyter = True
    assert printed_on(console) is None
    assert printed_on(None) is None
