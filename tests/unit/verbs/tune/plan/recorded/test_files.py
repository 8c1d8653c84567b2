"""Files of recorded spaces: ours, T4 and Kernel Tuner's caches, whole, cut and foreign."""

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import Outcome
from tileyard.verbs.tune.plan.recorded.files import read_space, write_space
from tileyard.verbs.tune.plan.recorded.space import (
    FORMAT,
    Header,
    Recorded,
    find_interval,
    make_space,
)

CONFIGS = (
    Recorded(
        config={"block": 16, "fast": True, "kind": "a"},
        time_ns=2000.5,
        low_ns=1990.0,
        high_ns=2100.0,
        build_s=0.5,
        run_s=0.25,
        facts={"registers": 32},
    ),
    Recorded(
        config={"block": 32, "fast": False, "kind": "b"},
        outcome=Outcome.COMPILE_ERROR,
        build_s=0.125,
        other_s=0.0625,
        reason="no such register",
    ),
)
HEADER = Header(
    tileyard=FORMAT,
    kernel="gemm",
    configs=2,
    parameters={"block": (16, 32), "fast": (True, False), "kind": ("a", "b")},
    arguments={"M": 64},
    target="cuda:sm_90a",
    device="cuda:0",
    silicon="h100",
    source="somewhere",
    licence="MIT",
)
SPACE = make_space(HEADER, CONFIGS, "here")
CACHE: dict[str, Any] = {
    "device_name": "a GPU",
    "kernel_name": "gemm",
    "problem_size": [64, 32],
    "tune_params_keys": ["block", "fast"],
    "tune_params": {"block": [16, 32], "fast": [0, 1]},
    "cache": {
        "16,0": {
            "block": 16,
            "fast": 0,
            "time": 1.5,
            "times": [1.0, 2.0, 1.5],
            "compile_time": 250.0,
            "benchmark_time": 125.0,
            "framework_time": 62.5,
        },
        "32,0": {"block": 32, "fast": 0, "time": "CompilationFailedConfig", "compile_time": 500.0},
        "32,1": {"block": 32, "fast": 1, "time": 1e20, "__error__": "RuntimeFailedConfig"},
    },
}


@pytest.mark.parametrize("name", ["space.jsonl", "space.jsonl.gz"])
def test_a_space_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    """Every field, with the types of its values, and equal spaces make equal files."""
    file = tmp_path / name
    write_space(SPACE, file)
    assert read_space(file) == SPACE
    first = file.read_bytes()
    write_space(SPACE, file)
    assert file.read_bytes() == first


def test_t4_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Also what T4 has no field for: it is in the metadata, and among the measurements."""
    file = tmp_path / "t4.json.gz"
    write_space(SPACE, file, is_t4=True)
    found = read_space(file)
    assert found.header == SPACE.header
    assert found.configs[1] == CONFIGS[1]
    assert found.configs[0].time_ns == pytest.approx(CONFIGS[0].time_ns)
    same = {"time_ns": 0.0, "low_ns": 0.0, "high_ns": 0.0}
    assert msgspec.structs.replace(found.configs[0], **same) == msgspec.structs.replace(
        CONFIGS[0], **same
    )


def test_t4_of_other_tuners(tmp_path: Path) -> None:
    """In the unit of time of its metadata; without `time` the mean of the runs counts."""
    result = {
        "configuration": {"block": 16},
        "times": {"compilation": 1.0, "runtimes": [0.5, 1.5], "validation": 2.0},
        "invalidity": "correct",
        "correctness": 1,
    }
    failed = {**result, "configuration": {"block": 32}, "invalidity": "timeout"}
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"schema_version": "1.0.0", "results": [result, failed]}))
    first, second = read_space(file).configs
    assert (first.time_ns, first.build_s, first.run_s) == (1e9, 1.0, 4.0)
    assert (second.outcome, second.time_ns, second.reason) == (Outcome.TIMEOUT, None, "timeout")


@pytest.mark.parametrize("end", ["}}", "}", "", ",", ",\n"])
def test_a_cache_is_read_also_without_its_last_braces(tmp_path: Path, end: str) -> None:
    """As Kernel Tuner leaves it when a run is interrupted; then a note says so."""
    file = tmp_path / "cache.json"
    file.write_text(json.dumps(CACHE).removesuffix("}}") + end)
    found = read_space(file)
    assert bool(found.note) == (end != "}}")
    good, unbuilt, failed = found.configs
    assert (good.config, good.time_ns, good.reason) == ({"block": 16, "fast": 0}, 1.5e6, "")
    assert (good.build_s, good.run_s, good.other_s) == (0.25, 0.125, 0.0625)
    assert (good.low_ns or 0) < 1.5e6 < (good.high_ns or 0)
    assert (unbuilt.outcome, unbuilt.cost_s) == (Outcome.COMPILE_ERROR, 0.5)
    assert (failed.outcome, failed.time_ns) == (Outcome.RUNTIME_ERROR, None)
    assert found.header.arguments == {"problem_size": "64 x 32"}
    assert found.points.size == 3


def write_whole(kind: str, file: Path) -> bytes:
    """A whole file of a kind, and its content."""
    if kind == "cache":
        file.write_text(json.dumps(CACHE))
    else:
        write_space(SPACE, file, is_t4=kind == "t4")
    return file.read_bytes()


@pytest.mark.parametrize("kind", ["space", "t4", "cache"])
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_cut_file_is_one_line(tmp_path: Path, kind: str, ending: str) -> None:
    """Wherever it is cut; a cache that is cut after a config may be one of an interrupted run."""
    file = tmp_path / f"file{ending}"
    data = write_whole(kind, file).rstrip()
    if ending and kind == "cache":
        data = gzip.compress(data, mtime=0)
    # Every byte would be the same lines again.
    for length in sorted({*range(0, len(data), 5), *range(len(data) - 12, len(data))}):
        file.write_bytes(data[:length])
        message = read_or_refuse(file)
        assert "\n" not in message
        assert str(file) in message


def read_or_refuse(file: Path) -> str:
    """The refusal of a file; of a cache of an interrupted run, the note about it."""
    try:
        return read_space(file).note
    except UsageError as refused:
        return str(refused)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (b"", "is no recorded space"),
        (b"# a page\n", "is no recorded space"),
        (b'{"tileyard":"space 2","kernel":"","configs":0,"parameters":{}}\n', "space 2"),
        (b'{"tileyard":"trials 1"}\n', "trials 1"),
        (b'{"tune_params_keys": ["a"], "cache": {"1": {"a": [1], "time": 1}}}', "no number, text"),
        (b'{"tune_params_keys": ["a"], "cache": {"1": {"a": 1}}}', "has no time"),
        (b'{"tune_params_keys": ["a"], "cache": {"1": {"a": 1, "time": -1}}}', "above 0"),
        (b'{"tune_params_keys": ["a"], "cache": {"1": {"time": 1}}}', "no value of a"),
        (
            b'{"tune_params_keys": ["a"], "cache": {"1": {"a": 1, "time": 1, "times": [1, 1e200]}}}',
            r"times is 1e\+200, and no number up to 1e\+100",
        ),
        (b'{"tune_params_keys": ["a"], "cache": {}}', "none of 0 configs has a time"),
        (b'{"results": [], "metadata": {"timeunit": "moons"}}', "no unit of time"),
        (b'{"results": ' + b"[" * 10_000, "cut, or no T4"),
        (b"\x1f\x8bnothing", "is"),
    ],
)
def test_a_foreign_file_is_one_line(tmp_path: Path, change: bytes, message: str) -> None:
    """It names the file, and what is wrong in it."""
    file = tmp_path / "file"
    file.write_bytes(change)
    with pytest.raises(UsageError, match=message) as raised:
        read_space(file)
    assert str(file) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_contradictions_are_named() -> None:
    """A config that occurs twice, a value that its parameter lacks, and a negative cost."""
    twice = (*CONFIGS, CONFIGS[0])
    with pytest.raises(UsageError, match="config 3 occurs twice"):
        make_space(HEADER, twice, "here")
    other = msgspec.structs.replace(CONFIGS[0], config={"block": 16.0, "fast": True, "kind": "a"})
    with pytest.raises(UsageError, match=r"block is 16\.0"):
        make_space(HEADER, [other], "here")
    with pytest.raises(UsageError, match="build_s is -1"):
        make_space(HEADER, [msgspec.structs.replace(CONFIGS[0], build_s=-1.0)], "here")


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    """By its number, as in an editor."""
    file = tmp_path / "space.jsonl"
    write_space(SPACE, file)
    file.write_bytes(file.read_bytes().replace(b'"compile_error"', b'"broken"'))
    with pytest.raises(UsageError, match=f"{file}:3: not a line of a recorded space"):
        read_space(file)


def test_the_points_of_a_space_are_those_recorded() -> None:
    """Axes if every combination is recorded, else a list."""
    configs = [Recorded(config={"a": a, "b": b}, time_ns=1.0) for a in (1, 2) for b in (1, 2, 3)]
    header = Header(tileyard=FORMAT, kernel="", configs=6, parameters={"a": (1, 2), "b": (1, 2, 3)})
    assert make_space(header, configs, "").points.lengths == (2, 3)
    assert make_space(header, configs[:-1], "").points.lengths == (5,)


def test_the_interval_of_a_mean_is_students() -> None:
    """Ten samples: 2.262 standard errors; it does not leave the range of few samples."""
    samples = [float(number) for number in range(10)]
    low, high = find_interval(4.5, samples)
    assert (high - 4.5) == pytest.approx(2.262 * 3.02765 / 10**0.5, rel=1e-3)
    assert low == pytest.approx(9 - high)
    assert find_interval(1.5, [1.0, 2.0]) == (1.0, 2.0)
    assert find_interval(3.0, [3.0]) == (3.0, 3.0)
