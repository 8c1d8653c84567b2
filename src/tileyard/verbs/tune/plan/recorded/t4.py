"""Reads and writes T4, the results format of the auto-tuning community: one JSON document.

The schema is that of https://github.com/odgaard/TuningSchema, branch T4, as in Kernel Tuner 1.5.0.
"""

from collections.abc import Mapping

import msgspec

from tileyard.base.decoding import decode_json
from tileyard.base.errors import UsageError
from tileyard.base.model import WELL, Outcome, Value
from tileyard.verbs.tune.plan.recorded.space import (
    FORMAT,
    Header,
    Recorded,
    RecordedSpace,
    Table,
    as_config,
    as_number,
    as_numbers,
    find_interval,
    list_parameters,
    make_space,
)

VERSION = "1.0.0"
OUTCOMES: Mapping[str, Outcome] = {
    "correct": Outcome.PASSED,
    "compile": Outcome.COMPILE_ERROR,
    "constraints": Outcome.COMPILE_ERROR,
    "runtime": Outcome.RUNTIME_ERROR,
    "correctness": Outcome.MISMATCH,
    "timeout": Outcome.TIMEOUT,
}
INVALIDITY: Mapping[Outcome, str] = {
    Outcome.COMPILE_ERROR: "compile",
    Outcome.MISMATCH: "correctness",
    Outcome.TIMEOUT: "timeout",
}
"""The word for each outcome of a failure that is not one at run time."""
ERRORS: Mapping[str, str] = {"compile": "CompilationFailedConfig"}
"""What readers expect in place of the time of a failure; of others it is that of a failed run."""
UNITS_S: Mapping[str, float] = {
    **dict.fromkeys(("seconds", "s"), 1.0),
    **dict.fromkeys(("milliseconds", "miliseconds", "ms"), 1e-3),
    **dict.fromkeys(("microseconds", "us"), 1e-6),
    **dict.fromkeys(("nanoseconds", "ns"), 1e-9),
}
TIME, LOW, HIGH, REASON = "time", "time_low", "time_high", "reason"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One config."""

    configuration: dict[str, object]
    times: dict[str, object]
    invalidity: str
    correctness: float = 1.0
    measurements: list[dict[str, object]] = []
    objectives: tuple[str, ...] = (TIME,)


class Metadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is not about one config: the unit of ``times``, and, in files of ours, the space's header."""

    timeunit: str = "seconds"
    tileyard: Header | None = None


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A file."""

    results: list[Result]
    schema_version: str = VERSION
    metadata: Metadata = Metadata()


def encode_t4(space: RecordedSpace) -> bytes:
    """A space as T4. ``runtimes`` is the time of a config's run, as those who sum it up expect."""
    results = [_write(one) for one in space.configs]
    metadata = Metadata(timeunit="milliseconds", tileyard=space.header)
    return msgspec.json.encode(Document(results=results, metadata=metadata)) + b"\n"


def _write(one: Recorded) -> Result:
    invalidity = "correct" if one.is_timed else INVALIDITY.get(one.outcome, "runtime")
    error = ERRORS.get(invalidity, "RuntimeFailedConfig")
    times = {LOW: one.low_ns, HIGH: one.high_ns}
    measured: list[dict[str, object]] = [
        {"name": TIME, "value": 1e-6 * one.time_ns, "unit": "ms"}
        if one.is_timed and one.time_ns is not None
        else {"name": TIME, "value": error, "unit": "ms"}
    ]
    measured += [
        {"name": name, "value": 1e-6 * time_ns, "unit": "ms"}
        for name, time_ns in times.items()
        if time_ns is not None
    ]
    texts = {REASON: one.reason} if one.reason else {}
    measured += [
        {"name": name, "value": value, "unit": ""} for name, value in (texts | one.facts).items()
    ]
    run_ms = 1e3 * one.run_s
    return Result(
        configuration=dict(one.config),
        times={
            "compilation": 1e3 * one.build_s,
            "benchmark": run_ms,
            "runtimes": [run_ms],
            "framework": 1e3 * one.other_s,
            "search_algorithm": 0.0,
            "validation": 0.0,
        },
        invalidity=invalidity,
        correctness=float(one.outcome in WELL),
        measurements=measured,
    )


def decode_t4(data: bytes, place: str) -> RecordedSpace:
    """The space in a T4 document. Raises UsageError."""
    try:
        document = decode_json(data, Document)
    except msgspec.DecodeError as error:
        raise UsageError(f"{place} is cut, or no T4 document: {error}") from None
    unit_s = UNITS_S.get(document.metadata.timeunit.lower())
    if unit_s is None:
        raise UsageError(
            f"{place}: timeunit is {document.metadata.timeunit!r}, and no unit of time"
        )
    configs = [
        _read(result, unit_s, f"{place}: result {number}")
        for number, result in enumerate(document.results, start=1)
    ]
    own = document.metadata.tileyard
    if own is not None:
        return make_space(msgspec.structs.replace(own, configs=len(configs)), configs, place)
    header = Header(
        tileyard=FORMAT,
        kernel="",
        configs=len(configs),
        parameters=list_parameters([one.config for one in configs]),
        statistic="mean",
    )
    return make_space(header, configs, place)


def _read(result: Result, unit_s: float, where: str) -> Recorded:
    outcome = OUTCOMES.get(result.invalidity)
    if outcome is None:
        known = ", ".join(OUTCOMES)
        raise UsageError(f"{where}: invalidity is {result.invalidity!r}", f"there are: {known}")
    measured = {str(one.get("name")): one for one in result.measurements}
    runtimes = as_numbers(result.times.get("runtimes"), f"{where}: runtimes")

    def seconds(*names: str) -> float:
        times = (as_number(result.times.get(name), f"{where}: {name}") for name in names)
        return unit_s * sum(times)

    benchmark_s = seconds("benchmark") if "benchmark" in result.times else unit_s * sum(runtimes)
    found = Recorded(
        config=as_config(result.configuration, where),
        outcome=outcome,
        build_s=seconds("compilation", "compilation_time"),
        run_s=benchmark_s + seconds("validation"),
        other_s=seconds("framework", "search_algorithm"),
        reason=str(measured.get(REASON, {}).get("value", "")),
        facts=_read_facts(measured),
    )
    time = measured.get(TIME, {}).get("value")
    if isinstance(time, str) and outcome in WELL:
        return msgspec.structs.replace(found, outcome=Outcome.RUNTIME_ERROR, reason=time)
    if outcome not in WELL:
        word = time if isinstance(time, str) else result.invalidity
        return msgspec.structs.replace(found, reason=found.reason or word)
    if TIME not in measured and not runtimes:
        raise UsageError(f"{where} has no time", "only results with `time` are read")
    time_ns = (
        _read_ns(measured[TIME], where)
        if TIME in measured
        else 1e9 * unit_s * sum(runtimes) / len(runtimes)
    )
    low, high = find_interval(time_ns, [1e9 * unit_s * one for one in runtimes])
    if LOW in measured and HIGH in measured:
        low, high = _read_ns(measured[LOW], where), _read_ns(measured[HIGH], where)
    return msgspec.structs.replace(found, time_ns=time_ns, low_ns=low, high_ns=high)


def _read_ns(measured: Table, where: str) -> float:
    """A measured time; without a unit it is in milliseconds, as Kernel Tuner's are."""
    unit = str(measured.get("unit") or "ms")
    if unit.lower() not in UNITS_S:
        raise UsageError(f"{where}: the unit of its time is {unit!r}, and no unit of time")
    return 1e9 * UNITS_S[unit.lower()] * as_number(measured.get("value"), f"{where}: time")


def _read_facts(measured: Mapping[str, Table]) -> dict[str, Value]:
    """What else was measured, as far as it is a plain value."""
    values = {
        name: one.get("value")
        for name, one in measured.items()
        if name not in {TIME, LOW, HIGH, REASON}
    }
    return {name: v for name, v in values.items() if isinstance(v, bool | int | float | str)}
