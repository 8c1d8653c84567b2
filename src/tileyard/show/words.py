"""Formats figures, durations and configs as words, the same way in every view."""

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from tileyard.base.clock import LONGEST_S
from tileyard.base.errors import UsageError
from tileyard.base.events import StopReason
from tileyard.base.model import WELL, Measurement, Mismatch, Outcome, SourceLine, Value
from tileyard.base.wording import name_line

_NUMBERED = re.compile(r"/\* (\d+): ")

UNSEEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that are not seen or change how others are shown, except newlines and tabs."""
SAME_WAY = 0.05
"""Largest difference in the share of wrong elements between outputs that are wrong in the same way."""
NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
TIMES = {"ns": "", "CPU ns": " CPU"}
"""Units of times, and the text that follows such a time."""
MESSAGE_LENGTH = 500
WIDE = 0.05
"""The share of a median from which on the two sides of its interval are stated each."""
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]\d+)?(?![\w.]*\w)")
OUTCOME_STYLES: dict[Outcome, str] = {
    Outcome.PASSED: "green",
    Outcome.UNCHECKED: "yellow",
    Outcome.SKIPPED: "dim",
    Outcome.NOT_RUN: "dim",
    Outcome.QUEUE_TIMEOUT: "magenta",
    Outcome.INFRA_ERROR: "magenta",
}
"""Outcomes that are not listed are failures, and red."""
STOPS: dict[StopReason, str] = {
    "done": "",
    "budget": "stopped early: its time was spent",
    "gain": "stopped early: little gain was expected",
    "first_failure": "stopped at the first failure (--fail-fast)",
    "interrupted": "stopped early: it was interrupted",
}
"""Phrases for a run that did not reach its end."""
UNITS_S = {"": 1.0, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def format_time(nanoseconds: float) -> str:
    """Three or four significant digits with a suitable unit: ns, us, ms or s."""
    for limit, unit in ((1e3, "ns"), (1e6, "us"), (1e9, "ms")):
        if nanoseconds < limit:
            return f"{nanoseconds / (limit / 1e3):.4g} {unit}"
    return f"{nanoseconds / 1e9:.4g} s"


def find_unit(time_ns: float) -> tuple[str, float]:
    """A suitable unit for a time, and its size in nanoseconds."""
    units = reversed(NANOSECONDS.items())
    return next((pair for pair in units if time_ns >= pair[1]), ("ns", 1.0))


def format_interval(measured: Measurement) -> str:
    """A median's interval in percent: half its width, or both sides if one is wide: -97.3 +3.3 %."""
    below, above = _sides(measured)
    if max(below, above) < WIDE:
        return format_share((below + above) / 2, 1)
    return f"-{100 * below:.1f} +{100 * above:.1f} %"


def format_measured(measured: Measurement) -> str:
    """The median time, and its interval where that is wide: 3.766 ms [103 us, 3.889 ms]."""
    took = format_time(measured.median_ns)
    if max(_sides(measured)) < WIDE:
        return took
    return f"{took} [{format_time(measured.low_ns)}, {format_time(measured.high_ns)}]"


def _sides(measured: Measurement) -> tuple[float, float]:
    median_ns = measured.median_ns
    if not median_ns:
        return 0.0, 0.0
    return 1 - measured.low_ns / median_ns, measured.high_ns / median_ns - 1


def format_quantity(number: float, unit: str) -> str:
    """A number with its unit; nanoseconds as in ``format_time``, of a CPU or not."""
    if unit in TIMES:
        return format_time(number) + TIMES[unit]
    return clean_line(f"{number:.6g} {unit}")


def format_rate(flops: float, nanoseconds: float) -> str:
    """Floating-point operations per second in GFLOP/s; empty if the work is not known."""
    return f"{flops / nanoseconds:.1f}" if flops and nanoseconds else ""


def format_config(config: Mapping[str, Value], between: str = " ") -> str:
    """``key=value`` pairs in the config's own order."""
    return between.join(f"{key}={value}" for key, value in config.items())


def format_seconds(seconds: float) -> str:
    """A duration for people: 0.4 s, 12 s, 3 min 20 s."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def leave_out_numbers(text: str) -> str:
    """What texts share that are equal but for their numbers."""
    return _NUMBER.sub("#", text)


def join_numbers(texts: Sequence[str]) -> str:
    """One text for several that differ in numbers only: the least and the largest of each."""
    found = iter(zip(*map(_NUMBER.findall, texts), strict=True))

    def join(_: re.Match[str]) -> str:
        numbers = sorted(set(next(found)), key=float)
        return f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else numbers[0]

    return _NUMBER.sub(join, texts[0])


class Compared(Protocol):
    """What ended, and how wrong its worst output was."""

    @property
    def outcome(self) -> Outcome:
        """How it ended."""

    @property
    def mismatch(self) -> Mismatch | None:
        """What was wrong, if it was compared."""


def ask_about_reference(ended: Sequence[Compared], names: str) -> str:
    """A question if all that was compared is wrong alike: one output, about the same share.
    Otherwise empty. ``names`` says what was compared.
    """
    found = [one.mismatch for one in ended if one.mismatch is not None]
    shares = [one.wrong / max(one.total, 1) for one in found]
    is_well = any(one.outcome in WELL for one in ended)
    is_alike = len({one.output for one in found}) == 1 and max(shares) - min(shares) <= SAME_WAY
    if is_well or len(found) < 2 or not is_alike:
        return ""
    return f"all {len(found)} {names} differ in the same way from the reference: is the reference right?"


def format_share(share: float, digits: int = 0) -> str:
    """A share in percent: 5 %, with ``digits`` behind the point."""
    return f"{100 * share:.{digits}f} %"


def format_bytes(size: float) -> str:
    """Three significant digits with a suitable unit: B, KiB, MiB, GiB or TiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"


def make_visible(text: str) -> str:
    """Foreign text with control characters and lone surrogates escaped, except newlines and tabs."""
    return UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def clean_line(text: str, limit: int = 0) -> str:
    """Foreign text as one line without effect on a terminal, cut at ``limit`` characters if not 0.
    Unprintable characters are escaped, but for separators of words or lines.
    """
    line = " ".join(text.split())
    if not line.isprintable():
        line = "".join(
            letter if letter.isprintable() else letter.encode("unicode_escape").decode()
            for letter in line
        )
    return line[: limit - 1] + "…" if limit and len(line) > limit else line


def outcome_style(outcome: Outcome) -> str:
    """The colour in which an outcome is shown."""
    return OUTCOME_STYLES.get(outcome, "red")


def format_case(case: str, attempt: int) -> str:
    """A case's name; a first attempt is not numbered."""
    shown = clean_line(case)
    return f"{shown}, attempt {attempt}" if attempt > 1 else shown


class Ended(Protocol):
    """What is known of a case that ended."""

    @property
    def outcome(self) -> Outcome:
        """Its outcome."""
        ...

    @property
    def message(self) -> str:
        """Its message."""
        ...

    @property
    def mismatch(self) -> Mismatch | None:
        """Its mismatch."""
        ...


def why(ended: Ended) -> str:
    """One line on how a case ended, from whatever is known of it; the log has the long form."""
    mismatch = ended.mismatch.describe() if ended.mismatch is not None else ""
    return clean_line(ended.message or mismatch or str(ended.outcome), MESSAGE_LENGTH)


def parse_duration_s(text: str, longest_s: float = LONGEST_S) -> float:
    """``90``, ``500ms``, ``60s``, ``5m`` or ``1h``, in seconds. Raises UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?", text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a duration such as 60s or 5m")
    seconds = float(match[1]) * UNITS_S[match[2] or ""]
    if seconds > longest_s:
        raise UsageError(f"{text[:40]!r} is too long: a duration has at most {longest_s:.0f} s")
    return seconds


def spell_duration(seconds: float) -> str:
    """Seconds as people write them: ``120s``, from five whole minutes on ``30m``."""
    minutes, rest = divmod(seconds, 60)
    return f"{minutes:g}m" if minutes >= 5 and not rest else f"{seconds:g}s"


def annotate(text: str, lines: Mapping[int, SourceLine]) -> str:
    """``text`` with ``kernels.py:41`` in comments that name a statement of known line; no line moves."""

    def name(found: re.Match[str]) -> str:
        at = lines.get(int(found[1]))
        return found[0] if at is None else f"/* {name_line(at.file, at.line)}: "

    return _NUMBERED.sub(name, text)
