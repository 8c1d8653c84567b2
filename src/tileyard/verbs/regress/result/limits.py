"""Limits of how much figures may get worse from base to head: parses and checks them."""

import re
from collections.abc import Iterator, Sequence
from typing import NoReturn

from tileyard.artifacts.manifest import Build
from tileyard.base.errors import UsageError
from tileyard.base.model import Outcome, Record
from tileyard.targets.registry import find_needs
from tileyard.verbs.regress.result.figures import (
    BUILD,
    METRICS,
    MIX,
    BuildTimes,
    Change,
    list_metrics,
)

MISSING = "missing"
_FORM = re.compile(
    r"(?P<metric>[a-z][a-z. ]*):(?P<sign>[+-])(?P<amount>\d+(?:\.\d+)?)(?P<percent>%?)"
)


class Limit(Record):
    """``metric`` may grow (or fall, if ``falls``) by ``amount``, or by so many percent of base's figure."""

    metric: str
    amount: float
    is_percent: bool
    falls: bool

    def __str__(self) -> str:
        sign, percent = "-" if self.falls else "+", "%" if self.is_percent else ""
        return f"{self.metric}:{sign}{self.amount:g}{percent}"

    def is_broken(self, base: float, head: float) -> bool:
        """Whether the figure has changed by more than it may."""
        allowed = abs(base) * self.amount / 100 if self.is_percent else self.amount
        return (base - head if self.falls else head - base) > allowed


def parse_limits(text: str) -> tuple[Limit, ...]:
    """Parse ``registers:+5%,spills:+0,occupancy:-10%``; ``missing`` adds nothing. Raises UsageError."""
    limits: list[Limit] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if part == MISSING:
            continue
        found = _FORM.fullmatch(part)
        if found is None:
            raise UsageError(
                f"{part!r} is not a limit such as registers:+5%, spills:+0 or occupancy:-10%"
            )
        metric = found["metric"]
        if metric not in METRICS and not metric.startswith(MIX):
            known = ", ".join((*METRICS, f"{MIX}KIND", MISSING))
            raise UsageError(f"there is no figure {metric!r}", f"there are: {known}")
        limits.append(
            Limit(
                metric=metric,
                amount=float(found["amount"]),
                is_percent=bool(found["percent"]),
                falls=found["sign"] == "-",
            )
        )
    return tuple(limits)


def require_figures(limits: Sequence[Limit], target: str) -> None:
    """Raise UsageError for limits on figures that builds for the target are known never to have."""
    known = find_needs(target).figures
    for limit in limits:
        if known is not None and limit.metric not in (*known, BUILD):
            _refuse(limit, target, known)


def require_reported(limits: Sequence[Limit], target: str, builds: Sequence[Build]) -> None:
    """Raise UsageError for a limit on a figure that none of these builds has; failed ones say nothing."""
    passed = [build for build in builds if build.outcome is Outcome.PASSED]
    known = list_metrics(passed)
    for limit in limits if passed else ():
        is_mix = limit.metric.startswith(MIX) and bool(known)  # a kind that nothing has counts as 0
        if limit.metric not in (*known, BUILD) and not is_mix:
            _refuse(limit, target, sorted(known))


def _refuse(limit: Limit, target: str, known: Sequence[str]) -> NoReturn:
    """Raise the UsageError for a limit that could never be broken."""
    if known:
        has = ", ".join(known)
        raise UsageError(
            f"--fail-on {limit}: builds for {target} have no such figure", f"they have: {has}"
        )
    raise UsageError(
        f"--fail-on {limit}: the compilers of the target {target} report no figures of a binary",
        "name a target of which they do, such as --target cuda:sm_90a of `tileyard static`; "
        "--fail-over limits times",
    )


def find_broken_builds(build: BuildTimes | None, limits: Sequence[Limit]) -> Iterator[str]:
    """One line per limit that the build time of all kernels breaks, even in the mildest round."""
    for limit in limits:
        if limit.metric == BUILD and build is not None and not build.is_first:
            base = sum(build.base_s) / len(build.base_s)
            mildest = build.high if limit.falls else build.low
            if limit.is_broken(base, base * mildest):
                yield (
                    f"all kernels: build x {build.ratio:.2f} [{build.low:.2f}, "
                    f"{build.high:.2f}], allowed {limit}"
                )


def find_broken(changes: Sequence[Change], limits: Sequence[Limit]) -> Iterator[str]:
    """One line per limit that one of a kernel's figures breaks, without build times."""
    for change, limit in list_breaking(changes, limits):
        yield f"{describe_change(change)}, allowed {limit}"


def list_breaking(
    changes: Sequence[Change], limits: Sequence[Limit]
) -> Iterator[tuple[Change, Limit]]:
    """The figures that break limits, in the order of the limits, without build times."""
    yield from ((one, limit) for limit in limits for one in changes if _breaks(one, limit))


def _breaks(change: Change, limit: Limit) -> bool:
    if change.metric != limit.metric or change.metric == BUILD:
        return False
    if change.base is None or change.head is None:
        return False
    return limit.is_broken(change.base, change.head)


def describe_change(change: Change) -> str:
    """``registers of scale 32 -> 40``; an unknown figure is ``?``."""
    what = f"{change.metric} of {change.function}" if change.function else change.metric
    base, head = ("?" if one is None else f"{one:g}" for one in (change.base, change.head))
    return f"{what} {base} -> {head}"
