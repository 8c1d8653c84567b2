"""Reads and writes files of recorded spaces: ours, T4 and Kernel Tuner's caches, also compressed."""

import gzip
import re
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tileyard.base.decoding import decode_json, draft_of
from tileyard.base.errors import UsageError
from tileyard.base.model import Outcome, Value
from tileyard.base.wording import count_of
from tileyard.verbs.tune.plan.recorded.space import (
    FORMAT,
    Header,
    Recorded,
    RecordedSpace,
    Table,
    as_config,
    as_number,
    as_numbers,
    as_value,
    decode_space,
    encode_space,
    find_interval,
    list_parameters,
    make_space,
)
from tileyard.verbs.tune.plan.recorded.t4 import decode_t4, encode_t4

OUTCOMES: Mapping[str, Outcome] = {
    "CompilationFailedConfig": Outcome.COMPILE_ERROR,
    "RuntimeFailedConfig": Outcome.RUNTIME_ERROR,
    "InvalidConfig": Outcome.COMPILE_ERROR,
    "ErrorConfig": Outcome.RUNTIME_ERROR,
}
"""Outcomes by the name of an error, which older files have as the time of a config."""
ERROR = "__error__"
ENDS = (b"", b"}", b"}}")
"""What the end of a file may lack: it is closed only at the end of a run."""


class Cache(msgspec.Struct, frozen=True, kw_only=True):
    """The document. Old files have no ``tune_params``."""

    cache: dict[str, dict[str, object]]
    tune_params_keys: tuple[str, ...]
    tune_params: dict[str, list[object]] = {}
    kernel_name: str = ""
    device_name: str = ""
    problem_size: object = None


def decode_cache(data: bytes, place: str) -> RecordedSpace:
    """The space in a cache; its times are means of their samples. Raises UsageError."""
    document, is_open = _decode(data, place)
    keys = document.tune_params_keys
    configs = [_read_entry(entry, keys, f"{place}: {key}") for key, entry in document.cache.items()]
    parameters = {
        key: tuple(as_value(value, f"{place}: {key}") for value in document.tune_params[key])
        for key in keys
        if key in document.tune_params
    }
    has_all = set(parameters) == set(keys)
    header = Header(
        tileyard=FORMAT,
        kernel=document.kernel_name,
        configs=len(configs),
        parameters=parameters if has_all else list_parameters([one.config for one in configs]),
        arguments=_read_size(document.problem_size),
        device=document.device_name,
        statistic="mean",
    )
    note = f"{place} is not closed after {count_of(len(configs), 'config')}: there may be more"
    return make_space(header, configs, place, note if is_open else "")


def _decode(data: bytes, place: str) -> tuple[Cache, bool]:
    """The document, and whether its end was missing."""
    text = data.rstrip()
    error: msgspec.DecodeError | None = None
    for end in ENDS:
        try:
            return decode_json(text.removesuffix(b",") + end if end else text, Cache), bool(end)
        except msgspec.DecodeError as found:
            error = error or found
    raise UsageError(f"{place} is cut, or no cache of Kernel Tuner: {error}")


def _read_entry(entry: Table, keys: tuple[str, ...], where: str) -> Recorded:
    """One entry, whose times are in milliseconds. Raises UsageError."""
    for key in keys:
        if key not in entry:
            raise UsageError(f"{where}: there is no value of {key}")
    config = as_config({key: entry[key] for key in keys}, where)

    def seconds(*names: str) -> float:
        return 1e-3 * sum(as_number(entry.get(name), f"{where}: {name}") for name in names)

    found = Recorded(
        config=config,
        build_s=seconds("compile_time"),
        run_s=seconds("benchmark_time", "verification_time"),
        other_s=seconds("framework_time", "strategy_time"),
    )
    time = entry.get("time")
    error = entry.get(ERROR, time)
    if isinstance(error, str):
        outcome = OUTCOMES.get(error, Outcome.RUNTIME_ERROR)
        return msgspec.structs.replace(found, outcome=outcome, reason=error)
    if time is None:
        raise UsageError(f"{where} has no time", "only caches with `time` are read")
    mean = as_number(time, f"{where}: time")
    low, high = find_interval(mean, as_numbers(entry.get("times"), f"{where}: times"))
    return msgspec.structs.replace(found, time_ns=1e6 * mean, low_ns=1e6 * low, high_ns=1e6 * high)


def _read_size(size: object) -> dict[str, Value]:
    """The arguments that follow from a problem's size."""
    if isinstance(size, list):
        return {"problem_size": " x ".join(map(str, size))}
    return {"problem_size": size} if isinstance(size, int | float | str) else {}


GZIP = b"\x1f\x8b"
BEGINNING = 4096
"""Bytes that tell the formats apart."""
HINT = "known are files of `tileyard trials export --as space`, T4, and caches of Kernel Tuner"


def read_space(file: str | Path) -> RecordedSpace:
    """The space in a file. Raises UsageError for one that is cut, foreign, or contradicts itself."""
    place = str(file)
    try:
        data = Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {place}: {error.strerror}") from None
    if data.startswith(GZIP):
        try:
            data = gzip.decompress(data)
        except EOFError:
            raise UsageError(f"{place} is cut", "copy or write it again") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise UsageError(f"{place} is damaged: {error}", "copy or write it again") from None
    beginning = data.lstrip()[:BEGINNING]
    if beginning.startswith(b'{"tileyard":'):
        return decode_space(data, place)
    if b'"tune_params_keys"' in beginning:
        return decode_cache(data, place)
    if re.search(rb'"(results|schema_version|metadata)"', beginning):
        return decode_t4(data, place)
    raise UsageError(f"{place} is no recorded space", HINT)


def write_space(space: RecordedSpace, file: str | Path, *, is_t4: bool = False) -> None:
    """Write a space as ours or as T4, compressed if the file's name ends with ``.gz``. Equal spaces give
    equal files. Raises UsageError.
    """
    path = Path(file)
    data = encode_t4(space) if is_t4 else encode_space(space.header, space.configs)
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    try:
        with draft_of(path) as draft:
            draft.write(data)
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from None
