"""Numbers that somebody else has measured: what is read, and what can honestly be said of it."""

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path

import jsonschema
import msgspec
import pytest
from tests.conftest import ROOT

from tileyard.base.errors import UsageError
from tileyard.cli.main import main
from tileyard.verbs.regress.plan.recorded import (
    NO_TIME,
    Report,
    as_reports,
    find_noise,
    judge_reports,
    pair_sides,
    read_reports,
    read_side,
)
from tileyard.verbs.regress.result import Gate, Regression

REPORTS = ROOT / "examples" / "reports" / "perf_reports.json"
SCHEMA = ROOT / "docs" / "reference" / "regress.schema.json"
PAGE = ROOT / "docs" / "how-to" / "compare-versions.md"
GATE = Gate(margin=0.02)
TABLE = """
Performance of 1a2b3c4:

| File | Original Latency | Current Latency | Speedup |
|:-----|-----------------:|----------------:|--------:|
| `gemm` | 0.5 | 0.55 | 0.909 |
| attention | 1.25 | 1.0 | 1.25 |
| broken | nan | | |
"""


def judge(*reports: dict[str, tuple[float, float]]) -> Regression:
    """What is said of these reports at a margin of 2 %."""
    found = [Report(name=str(number), times=one) for number, one in enumerate(reports, start=1)]
    return judge_reports(found, ("base", "head"), GATE)


def verdicts(result: Regression) -> dict[str, str]:
    """Of each benchmark."""
    return {row.case: row.verdict for row in result.rows}


def test_of_four_reports_no_row_vanishes() -> None:
    """Twenty of the first are missing in the others; three are slower in all four."""
    found = verdicts(judge_reports(read_reports(REPORTS), ("", ""), GATE))
    expected = 61
    assert len(found) == expected
    assert sum(verdict == "missing" for verdict in found.values()) == 20
    assert {name for name, verdict in found.items() if verdict == "regressed"} == {
        "example_warp_specialize_gemm_copy_1_gemm_0",
        "example_warp_specialize_gemm_softpipe_stage2",
        "example_warp_specialize_gemm_copy_0_gemm_1",
    }


def test_the_worked_example_is_what_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line of the page's block, in its order."""
    monkeypatch.chdir(ROOT)
    _, _, rest = PAGE.read_text().partition(
        f"$ tileyard regress --reports {REPORTS.relative_to(ROOT)}\n"
    )
    shown = rest.partition("```")[0].splitlines()
    assert main(["regress", "--reports", str(REPORTS)]) == 1
    printed = iter(capsys.readouterr().out.splitlines())
    assert len(shown) > 10
    for line in shown:
        assert line == "..." or line in printed, line


def test_what_is_allowed_is_shown_and_passes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With its owner and reason; what is slower by less than the limit passes as well."""
    words = ["regress", "--reports", str(REPORTS), "--fail-over", "4%"]
    assert main(words) == 1
    assert (
        "fails the comparison: 20 missing; slower kernels only beyond 4 %"
        in capsys.readouterr().out
    )
    entry = (
        'cases = "*"\nverdicts = ["missing"]\nowner = "ana"\nreason = "gone"\nuntil = 9999-12-31\n'
    )
    allow = tmp_path / "allow.toml"
    allow.write_text(f"[[allow]]\n{entry}")
    assert main([*words, "--allow", str(allow)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("allowed until 9999-12-31 (ana: gone)") == 20
    assert "3 regressed, not known to be beyond 4 %: do not gate" in printed


def test_the_document_is_what_the_schema_says(capsys: pytest.CaptureFixture[str]) -> None:
    """And the schema is that of the code: ``python tools/schema.py regress`` writes it."""
    assert main(["regress", "--reports", str(REPORTS), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    schema = json.loads(SCHEMA.read_text())
    jsonschema.validate(document, schema)
    document["rows"][0]["verdict"] = "slower"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, schema)
    found = {key: schema[key] for key in schema if key != "$schema"}
    assert found == json.loads(json.dumps(msgspec.json.schema(Regression)))


def test_one_number_for_each_side_is_inconclusive() -> None:
    """However large the change is: nobody knows the noise."""
    result = judge({"a": (1.0, 2.0), "b": (1.0, 1.0)})
    assert set(verdicts(result).values()) == {"inconclusive"}
    assert result.rows[0].ratio is not None
    assert result.rows[0].ratio.low is None
    assert "says nothing of noise" in result.notes[0]
    assert result.exit_status == 0


def test_reports_that_agree_decide() -> None:
    """Two to four of them are a few processes' worth."""
    times = [1.0, 1.001, 0.999, 1.0005]
    result = judge(
        *(
            {"slow": (time, 1.1 * time), "even": (time, time * 1.0001**n)}
            for n, time in enumerate(times)
        )
    )
    assert verdicts(result) == {"slow": "regressed", "even": "equivalent"}
    assert result.exit_status == 1


def test_earlier_reports_say_what_one_number_for_each_side_is_worth() -> None:
    """Of each benchmark alone; a change among them is noise, and equal numbers do not prove its absence."""
    before = []
    for number, step in enumerate([-2, 1, 0, 2, -1] * 4):
        factor = 1 + step / 2000
        times = {
            "slow": (1.0, 0.9 * factor),
            "even": (2.0, 2.0 * factor),
            "same": (1.0, 1.0),
            "loud": (1.0, factor**50),
            "moved": (1.0, 1.05 if number > 10 else 1.0),
            f"run {number}": (1.0, 1.0),
        }
        young = {"young": (1.0, factor)} if number > 1 else {}
        before.append(Report(name="", times=times | young))
    ratios = {"slow": 1.03, "even": 1.001, "same": 1.0, "loud": 1.03, "moved": 1.03, "young": 1.03}
    now = [Report(name="1", times={name: (1.0, ratio) for name, ratio in ratios.items()})]
    result = judge_reports(now, ("", ""), GATE, find_noise(before, now))
    decided = {"slow": "regressed", "even": "equivalent", "same": "equivalent"}
    assert verdicts(result) == dict.fromkeys(ratios, "inconclusive") | decided
    assert "noise from 20 earlier runs" in result.notes[0]
    (same,) = (row for row in result.rows if row.case == "same")
    assert same.smallest is not None
    assert same.smallest > 0.023


def test_one_of_four_real_reports_is_judged_by_none_of_the_others() -> None:
    """They are too few to know of outliers: one of them has a kernel that took 14 % longer, this once."""
    reports = read_reports(REPORTS)
    for now in reports:
        earlier = [one for one in reports if one is not now]
        result = judge_reports([now], ("", ""), GATE, find_noise(earlier, [now]))
        assert set(verdicts(result).values()) == {"inconclusive"}


def test_noise_from_real_reports_spares_a_verdict_by_chance() -> None:
    """Two of four agree on a kernel so well that it seems faster; the others' noise says otherwise."""
    reports = read_reports(REPORTS)
    now = reports[2:]
    plain = verdicts(judge_reports(now, ("", ""), GATE))
    whole = verdicts(judge_reports(reports, ("", ""), GATE))
    lucky = [
        name
        for name, verdict in plain.items()
        if verdict == "improved" and whole[name] == "inconclusive"
    ]
    assert len(lucky) == 1
    told = verdicts(judge_reports(now, ("", ""), GATE, find_noise(reports[:2], now)))
    assert told[lucky[0]] == "inconclusive"


def test_a_ratio_has_the_noise_of_both_sides() -> None:
    """Root 2 times that of the one side whose earlier times are known."""
    sides = [{"gemm": 500.0}, {"gemm": 510.0}]
    low, high = find_noise(as_reports(sides), []).values["gemm"]
    assert high - low == pytest.approx(math.sqrt(2) * math.log(1.02))


def test_earlier_files_of_a_side_say_it_as_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of both sides have more noise than those of one; what is among the sides counts for nothing."""

    def write(name: str, time: float) -> str:
        page = tmp_path / name
        rows = [{"name": "gemm", "latency": time}]
        page.write_text(f"__TILELANG_PERF_RESULTS_JSON__={json.dumps(rows)}\n")
        return str(page)

    times = [1 + number / 5000 for number in range(-10, 10)]
    earlier = [write(f"{n}.log", time) for n, time in enumerate(times)]
    words = ["regress", write("base.log", 1.00023), write("head.log", 1.05)]
    assert main([*words, *(f"--noise-from={file}" for file in earlier)]) == 1
    printed = capsys.readouterr().out
    assert "noise from 20 earlier runs" in printed
    assert "regressed      +4.98 %" in printed
    assert main([*words, "--noise-from", earlier[0], "--noise-from", words[1]]) == 2
    assert "two or more" in capsys.readouterr().err


def test_what_one_report_lacks_is_missing() -> None:
    """Also where all others agree; what only heads have is new."""
    first = {"gone": (1.0, 1.0), "kept": (1.0, 1.0), "young": (0.0, 1.0)}
    result = judge(first, {"kept": (1.0, 1.0), "young": (0.0, 1.0)})
    assert verdicts(result) == {"gone": "missing", "kept": "equivalent", "young": "new"}
    assert result.rows[0].message == "not in report 2"
    assert result.mean is not None
    assert result.mean.rows == 1


def test_a_table_of_markdown_is_a_report(tmp_path: Path) -> None:
    """Milliseconds in the second and third column; what has no number there is missing, and not left out."""
    page = tmp_path / "report.md"
    page.write_text(f"{TABLE}{TABLE}{TABLE.replace('0.55', '0.5501').replace('1.0 ', '1.001 ')}")
    one, two, three = read_reports(page)
    assert one.times == two.times
    result = judge_reports([one, two], ("", ""), GATE)
    assert verdicts(result) == dict.fromkeys(one.times, "inconclusive") | {"broken": "missing"}
    assert one.times["gemm"] == pytest.approx((500_000.0, 550_000.0))
    assert one.times["attention"] == pytest.approx((1_250_000.0, 1_000_000.0))
    result = judge_reports([one, two, three], ("", ""), GATE)
    assert verdicts(result) == {"broken": "missing", "gemm": "regressed", "attention": "improved"}


FORMS: dict[str, Callable[[str], str]] = {
    "pytest-benchmark": lambda time: (
        '{"benchmarks": [{"fullname": "kept", "stats": {"median": 0.5}}, {"fullname": "lost"'
        + (f', "stats": {{"median": {time}}}' if time else "")
        + "}]}"
    ),
    "TileLang": lambda time: (
        '__TILELANG_PERF_RESULTS_JSON__=[{"name": "kept", "latency": 500}, {"name": "lost"'
        + (f', "latency": {time}' if time else "")
        + "}]"
    ),
    "reports": lambda time: (
        '{"unit": "ms", "reports": [{"rows": [{"benchmark": "kept", "base": 500, "head": 500},'
        ' {"benchmark": "lost", "base": 500' + (f', "head": {time}' if time else "") + "}]}]}"
    ),
    "tables": lambda time: (
        f"| a | b | c |\n|---|---|---|\n| kept | 500 | 500 |\n| lost | 500 | {time} |\n"
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("time", ["0", "null", "", "-1", "NaN", "1e999", '"x"', "true"])
def test_what_is_no_time_loses_its_own_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, time: str
) -> None:
    """By its name, and it gates as a benchmark that is not there; the others are compared."""
    head, base = tmp_path / "head", tmp_path / "base"
    head.write_text(FORMS[form](time))
    base.write_text(FORMS[form]("500"))
    sides = ["--reports", str(head)] if form in ("reports", "tables") else [str(base), str(head)]
    assert main(["regress", *sides]) == 1
    printed = capsys.readouterr().out
    assert "2 kernels: 1 missing, 1 inconclusive\n" in printed, printed
    lost, why = next(
        pair for pair in itertools.pairwise(printed.splitlines()) if " lost" in pair[0]
    )
    assert (lost.split(), why) == (["missing", "lost"], f"    head: {NO_TIME}")
    if len(sides) == 2 and sides[0] != "--reports":
        assert main(["regress", *reversed(sides)]) == 1
        assert f"    base: {NO_TIME}\n" in capsys.readouterr().out


def test_a_file_without_benchmarks_lacks_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is missing; where no side has a time there is nothing to compare."""
    base, head = tmp_path / "base.json", tmp_path / "head.json"
    base.write_text(FORMS["pytest-benchmark"]("0.5"))
    head.write_text('{"benchmarks": []}')
    assert main(["regress", str(base), str(head)]) == 1
    assert "2 kernels: 2 missing\n" in capsys.readouterr().out
    base.write_text(FORMS["pytest-benchmark"]("0").replace("0.5", "null"))
    assert main(["regress", str(base), str(head)]) == 2
    assert " has a benchmark with a time\n" in capsys.readouterr().err


def test_each_side_has_a_file_of_its_own(tmp_path: Path) -> None:
    """TileLang's lines among others, and pytest-benchmark's medians."""
    base, head = tmp_path / "base.log", tmp_path / "head.json"
    rows = [{"name": "gemm", "latency": 0.5}, {"name": "gone", "latency": 1}]
    base.write_text(f"compiling\n__TILELANG_PERF_RESULTS_JSON__={json.dumps(rows)}\n")
    stats = {"median": 0.0006, "mean": 0.0007}
    head.write_text(json.dumps({"benchmarks": [{"fullname": "gemm", "stats": stats}]}))
    result = judge_reports(pair_sides(read_side(base), read_side(head)), ("b", "h"), GATE)
    assert verdicts(result) == {"gone": "missing", "gemm": "inconclusive"}
    (row,) = (row for row in result.rows if row.case == "gemm")
    assert row.ratio is not None
    assert row.ratio.ratio == pytest.approx(1.2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "has no table of a name, base and head"),
        ("| a | b | c |\n|---|---|---|\n| x | - | - |\n", "has no table of a name, base and head"),
        ('{"reports": []}', "holds no reports: Object missing required field"),
        ('{"unit": "parsec", "reports": []}', "there is no unit 'parsec'"),
        ('{"unit": "ms", "reports": []}', "has no table"),
        (
            '{"unit": "ms", "reports": [{"rows": [{"benchmark": "a", "base": 0, "head": null}]}]}',
            "has no table",
        ),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    """With the file and what is wrong with it."""
    page = tmp_path / "report"
    page.write_text(text)
    with pytest.raises(UsageError) as raised:
        read_reports(page)
    assert raised.value.message.startswith(str(page))
    assert expected in raised.value.message


@pytest.mark.parametrize(
    "text", ["", "{}", '{"benchmarks": {}}', '{"benchmarks": [{}]}', "[" * 9999]
)
def test_what_is_no_side_is_refused(tmp_path: Path, text: str) -> None:
    """Whatever it is."""
    page = tmp_path / "base.json"
    page.write_text(text)
    with pytest.raises(UsageError, match="is neither pytest-benchmark's JSON nor"):
        read_side(page)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "two sides are compared"),
        (("main",), "two sides are compared"),
        (("gone.json", "gone.json"), "cannot read gone.json"),
        (("--reports", "gone.md"), "cannot read gone.md"),
        (("main", "--reports", "gone.md"), "BASE has no effect with --reports"),
        ((".", ".", "k.py", "--noise-from", "a.json"), "--noise-from has no effect but on numbers"),
    ],
)
def test_bad_usage_is_one_line(
    words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is begun."""
    assert main(["regress", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert expected in line
