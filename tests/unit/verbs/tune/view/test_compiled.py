"""What building configs came to, as people read it."""

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from tileyard.artifacts.manifest import Build
from tileyard.base.model import BuildKey, Outcome
from tileyard.targets.own_sources import Resources
from tileyard.verbs.tune.result import CompileResult
from tileyard.verbs.tune.view.compiled import print_compiled

FIRST = Resources(
    symbol="main_kernel_0123456789ab",
    registers=168,
    spilled_bytes=0,
    stack_bytes=0,
    shared_bytes=1024,
    code_bytes=2048,
    parameter_bytes=264,
    threads=384,
    dynamic_shared_bytes=65536,
    occupancy=0.1875,
    mix={"float": 60, "tensor": 40, "global": 20, "other": 8},
)
SECOND = msgspec.structs.replace(
    FIRST,
    symbol="main_kernel_1_0123456789ab",
    spilled_bytes=48,
    threads=None,
    dynamic_shared_bytes=None,
    occupancy=None,
)


def _details(*resources: Resources) -> str:
    return msgspec.json.encode({"resources": resources, "arch": "sm_90a"}).decode()


def _result(*configs: Build, notes: tuple[str, ...] = ()) -> CompileResult:
    return CompileResult(
        run="r",
        kernel="gemm",
        arguments={"M": 256},
        target="cuda:sm_90a",
        space=4,
        configs=configs,
        notes=notes,
        seconds=2.5,
    )


def _print(result: CompileResult, home: Path, *, with_report: bool = True) -> list[str]:
    stream = io.StringIO()
    print_compiled(Console(file=stream, width=240), result, home, with_report=with_report)
    return stream.getvalue().splitlines()


GOOD = Build(
    case="a=1",
    config={"a": 1},
    outcome=Outcome.PASSED,
    build=BuildKey("c0ffee0123456789"),
    build_s=0.5,
    details=_details(FIRST, SECOND),
)
BAD = Build(
    case="a=2",
    config={"a": 2},
    outcome=Outcome.COMPILE_ERROR,
    message="k.py:7: TileLang: no",
    log="logs/r/a=2.log",
)


def test_the_table_has_a_row_for_each_function(tmp_path: Path) -> None:
    """A config's first function stands beside its values; the next ones below."""
    lines = _print(_result(GOOD, BAD), tmp_path)
    (first,) = [line for line in lines if " main_kernel " in line]
    (second,) = [line for line in lines if " main_kernel_1 " in line]
    expected = ["65.0 KiB", "384", "19 %", "passed", "c0ffee0123"]
    assert all(part in first for part in expected), first
    assert "48 B" in second
    assert "1.0 KiB + ?" in second
    assert "passed" not in second
    assert "the same in all rows: regs=168; code=2.0 KiB; mix=60 float, " in " ".join(lines)


@pytest.mark.parametrize("width", [240, 60])
def test_a_parameter_that_is_called_as_a_figure_has_a_name_of_its_own(
    tmp_path: Path, width: int
) -> None:
    """Neither are two columns called alike, nor is the parameter left out as the figure is."""
    threads, names = (128, 256), ("threads", "build", "code", "mix", "a", "b", "c")
    configs = [
        msgspec.structs.replace(GOOD, config=dict.fromkeys(names, count)) for count in threads
    ]
    stream = io.StringIO()
    print_compiled(Console(file=stream, width=width), _result(*configs), tmp_path, with_report=True)
    words = stream.getvalue().split()
    named = ["threads=128", "threads=256"] if width == 60 else ["config_threads", "config_code"]
    assert [words.count(name) for name in named] == [1, 1]
    assert "threads" not in words or width == 240


def test_failures_are_told_with_their_logs(tmp_path: Path) -> None:
    """A config that could not be built has its message, and its log where there is one."""
    expected = "compile_error  a=2: k.py:7: TileLang: no"
    assert expected in _print(_result(GOOD, BAD), tmp_path, with_report=False)
    log = tmp_path / BAD.log
    log.parent.mkdir(parents=True)
    log.write_text("")
    assert f"{expected}  log: {log}" in _print(_result(GOOD, BAD), tmp_path, with_report=False)


@pytest.mark.parametrize("with_report", [True, False])
def test_failures_with_one_message_are_told_once(tmp_path: Path, with_report: bool) -> None:
    """Numbers aside: the least and the largest, and the configs."""
    sizes = {2: "256", 3: "320", 4: "1024"}
    failed = [
        msgspec.structs.replace(
            BAD, config={"a": a}, message=f"k.py:7: needs {size} KiB; sm_90a allows 227.5 KiB"
        )
        for a, size in sizes.items()
    ]
    lines = _print(_result(GOOD, *failed), tmp_path, with_report=with_report)
    expected = [
        "compile_error  3 configs: k.py:7: needs 256 to 1024 KiB; sm_90a allows 227.5 KiB",
        "    a=2; a=3; a=4",
    ]
    assert [line for line in lines if "compile_error " in line or "a=2" in line] == expected


LARGE = msgspec.structs.replace(BAD, config={"a": 3}, message="needs much", exceeds="threads")
FULL = msgspec.structs.replace(LARGE, exceeds="registers")


@pytest.mark.parametrize(
    ("configs", "status", "counted"),
    [
        ((GOOD, LARGE, LARGE), 0, "2 too large (threads), 1 passed"),
        ((GOOD, LARGE, FULL), 0, "1 passed, 1 too large (threads), 1 too large (registers)"),
        ((GOOD, LARGE, BAD), 1, "1 passed, 1 too large (threads), 1 compile_error"),
        ((LARGE,), 1, "1 too large (threads)"),
        ((), 1, ""),
    ],
)
def test_what_no_device_has_room_for_is_no_failure(
    tmp_path: Path, configs: tuple[Build, ...], status: int, counted: str
) -> None:
    """Such configs are counted by the limit that they exceed; where nothing fits, nothing was built."""
    result = _result(*configs)
    lines = _print(result, tmp_path, with_report=False)
    assert any(line.endswith(f" in 2.5 s: {counted}") for line in lines), lines
    assert result.exit_status == status
    assert any(line.startswith("too large  ") for line in lines) == (LARGE in configs)


def test_the_last_lines_sum_up(tmp_path: Path) -> None:
    """Counts, what was known, and every warning once."""
    known = msgspec.structs.replace(GOOD, reused=True)
    lines = _print(_result(GOOD, known, BAD, notes=("alone", "alone")), tmp_path, with_report=False)
    expected = (
        "3 configs for cuda:sm_90a in 2.5 s: 2 passed, 1 compile_error; 1 known from earlier runs"
    )
    assert expected in lines
    assert lines.count("alone") == 1


def test_targets_that_say_nothing_have_no_columns_for_it(tmp_path: Path) -> None:
    """What a target does not report is not in the table."""
    plain = msgspec.structs.replace(GOOD, details='{"abi": 1}')
    text = "\n".join(_print(_result(plain), tmp_path))
    expected = "regs"
    assert expected not in text
    assert "passed" in text
