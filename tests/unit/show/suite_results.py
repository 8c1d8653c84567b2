"""Results of suites, made by hand."""

from datetime import date
from pathlib import Path

from tileyard.base.model import Mismatch, Outcome
from tileyard.base.quarantine import Quarantine
from tileyard.verbs.test.result.result import Attempted, CaseVerdict, LeftOut, Makespan, SuiteResult

SPARED = Quarantine(
    cases="cast/*", owner="ana", reason="rounds to even since 2.4", until=date(2026, 12, 1)
)


def verdict(
    case: str, *outcomes: Outcome, message: str = "", spared: bool = False, run_s: float = 1.0
) -> CaseVerdict:
    """A case with an attempt for each of the outcomes, the last of which is its own."""
    testcase = case.partition("/")[0]
    attempts = tuple(
        Attempted(
            trial=f"r.{number}",
            outcome=outcome,
            message="" if outcome is Outcome.PASSED else message,
            run_s=run_s,
            log=f"logs/r/{case}~{number}.log",
        )
        for number, outcome in enumerate(outcomes, start=1)
    )
    return CaseVerdict(
        case=case,
        testcase=testcase,
        family=testcase,
        outcome=outcomes[-1],
        message="" if outcomes[-1] is Outcome.PASSED else message,
        attempts=attempts,
        is_flaky=outcomes[-1] is Outcome.PASSED and len(outcomes) > 1,
        quarantine=SPARED if spared else None,
        where="/suites/ops.toml:12",
    )


def suite_result(*verdicts: CaseVerdict, home: Path = Path("/home/t")) -> SuiteResult:
    """A run that came to these verdicts and had nothing else to tell."""
    return SuiteResult(
        run="r",
        suite="ops",
        path="/suites/ops.toml",
        policy="full",
        home=str(home),
        verdicts=verdicts,
        seconds=200.0,
    )


def one_of_each() -> SuiteResult:
    """A run in which everything happened that can happen to a case."""
    mismatch = Mismatch(output="y", index=(3, 4), got="1.0", want="2.0", wrong=12, total=4096)
    wrong = CaseVerdict(
        case="row/f16",
        testcase="row",
        family="row",
        outcome=Outcome.MISMATCH,
        mismatch=mismatch,
        attempts=(
            Attempted(trial="r.2", outcome=Outcome.CRASHED, message="died of SIGSEGV", run_s=2.0),
            Attempted(
                trial="r.9", outcome=Outcome.MISMATCH, run_s=30.0, log="logs/r/row/f16~2.log"
            ),
        ),
        where="/suites/ops.toml:7",
    )
    return SuiteResult(
        run="r",
        suite="ops",
        path="/suites/ops.toml",
        policy="nightly",
        home="/home/t",
        verdicts=(
            verdict("row/f32", Outcome.PASSED),
            wrong,
            verdict("col/f16", Outcome.CRASHED, Outcome.PASSED, message="died of SIGBUS"),
            verdict("col/f32", Outcome.SKIPPED, message="proven by run q"),
            verdict("cast/f8", Outcome.MISMATCH, message="y[0] is 1, expected 2", spared=True),
            verdict("cast/f4", Outcome.INFRA_ERROR, message="slot:3 went away"),
            CaseVerdict(
                case="sort/i8",
                testcase="sort",
                family="sort",
                outcome=Outcome.NOT_RUN,
                message="the run ended before this case was reached",
            ),
        ),
        left_out=(
            *(LeftOut(case=f"gemm/big{i}", reason="not in the smoke run") for i in range(7)),
            LeftOut(case="gemm/tiny", reason="skip list: takes a day"),
        ),
        uncovered=("gemm", "softmax"),
        notes=("the quarantine of row/* ended on 2026-11-01: 2 cases gate again",),
        makespan=Makespan(
            slots=64,
            total_s=6000.0,
            bound_s=100.0,
            predicted_s=104.0,
            achieved_s=110.0,
            reason="4.0 s before the first case could start",
        ),
        seconds=200.0,
    )
