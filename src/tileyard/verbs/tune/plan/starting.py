"""What a study begins with: incumbents, configs of the user's, and what earlier studies found."""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from tileyard.artifacts.objects import canonical_json
from tileyard.base.errors import UsageError
from tileyard.base.events import Note
from tileyard.base.model import WELL, Device, Trial
from tileyard.service.bench import Bench
from tileyard.show.words import format_config
from tileyard.store.base import BUILD_FAILURES, REUSABLE, Store, TrialQuery
from tileyard.store.choices import Choice, list_choices, measure_distance
from tileyard.targets.registry import find_needs
from tileyard.verbs.tune.options import StartTune
from tileyard.verbs.tune.plan.deciding import is_screening
from tileyard.verbs.tune.plan.goals import TIME_ALONE, Goals
from tileyard.verbs.tune.plan.space import OpenSpace
from tileyard.verbs.tune.plan.strategies.base import Config

Recall = Callable[..., list[Trial]]
"""As ``list_recorded``, of some store."""
MOST_RECORDED = 10_000
"""The most earlier trials that are read."""
MOST_NEAR = 5
"""Configs that won elsewhere and are tried first."""
ELSEWHERE = 2.0
"""The distance of another silicon or target, in doublings of an argument."""


async def begin_with_known(  # noqa: PLR0913 - the last ones by keyword only
    start: StartTune,
    bench: Bench,
    devices: Sequence[Device],
    space: OpenSpace,
    *,
    goals: Goals = TIME_ALONE,
    recall: Recall,
) -> None:
    """Have a study begin with the incumbents, then the user's configs, and then those that won for near
    arguments or on other silicon; a strategy that learns hears of earlier trials. With ``--fresh`` nothing
    recorded counts but the config in use.

    Raises UsageError for a config of the user's that is not in the space, or that ``where`` rejects, and as
    ``begin_with_incumbents``.
    """
    request = start.request
    if start.reuse and space.learns:
        known = recall(space.kernel, start.target)
        tell_recorded(known, devices, space, goals)
    if not request.keeps_default:
        return
    await begin_with_incumbents(start, bench, devices, space)
    seeds = [complete_config(space, one, "--seed-config") for one in request.seed_config]
    for seed in seeds:
        if space.points.find(seed) is None:
            odd = [key for key, value in seed.items() if value not in space.points.values_of(key)]
            raise UsageError(
                f"--seed-config is not in the space: {format_config(seed)}",
                f"{odd[0]} has no such value" if odd else "no such combination is valid",
            )
    first = [*seeds, *(config for _, config in space.incumbents)]
    winners: list[Choice] = []
    if start.reuse and not request.finals_only:
        winners = list_winners(recall(space.kernel), list_own(bench, space))
    near = list_near(winners, start.target, devices, space, first)
    accepted = await space.try_early([*seeds, *(one.config for one in near)])
    if not all(accepted[: len(seeds)]):
        raise UsageError(f"--seed-config is no valid config: {space.refusal}")
    tried = [*space.seeds, *(config for _, config in space.incumbents)]
    if any(seed not in tried for seed in seeds):
        raise UsageError(f"--trials {space.wanted} leaves no room for each --seed-config")
    kept = itertools.compress(near, accepted[len(seeds) :])
    space.origins = tuple(one.where for one in kept if one.config in space.seeds)


def complete_config(space: OpenSpace, asked: Config, option: str) -> Config:
    """A config with the kernel's defaults where ``asked`` has no value. Raises UsageError for parameters that
    neither has, or that do not exist.
    """
    config = {**(space.default or {}), **asked}
    if missing := [key for key in space.points.names if key not in config]:
        raise UsageError(
            f"{option} gives no value for {', '.join(missing)}",
            f"{space.kernel} has no default config that could have it",
        )
    if unknown := [key for key in asked if key not in space.points.names]:
        names = ", ".join(space.points.names) or "none"
        raise UsageError(
            f"{option} {unknown[0]} is no parameter of the space", f"there are: {names}"
        )
    return config


async def begin_with_incumbents(
    start: StartTune, bench: Bench, devices: Sequence[Device], space: OpenSpace
) -> None:
    """Have a study begin with the config to beat, by default the kernel's own, and the one in use, if it is a
    point of the space. Raises UsageError for a config to beat that ``where`` rejects, or a bundle lacks.
    """
    asked = start.request.default
    default = complete_config(space, asked, "--default") if asked else space.default
    if default and asked and space.asks is None and space.points.find(default) is None:
        raise UsageError(
            f"--default is none of the configs in the bundle: {format_config(default)}",
            "tune the kernel's file, where it is built",
        )
    named = [("default", default)] if default else []
    silicon = {device.identity for device in devices}
    for choice in list_own(bench, space):
        is_same = choice.arguments == space.arguments and choice.target == start.target
        if not (is_same and choice.silicon in silicon):
            continue
        if space.points.find(choice.config) is None:
            text = (
                f"in use, and not in the space: {format_config(choice.config)}; --default adds it"
            )
            bench.conversation.tell_event(Note(text=text))
        else:
            named.append(("in use", choice.config))
    await space.begin_with(named)
    if asked and not any(config == default for _, config in space.incumbents):
        raise UsageError(f"--default is no valid config: {space.refusal or 'where rejects it'}")


def list_own(bench: Bench, space: OpenSpace) -> list[Choice]:
    """What was chosen for the kernel, and not for one of its name in another file."""
    files = ("", Path(space.file).name)
    return [one for one in list_choices(bench.settings.home, space.kernel) if one.file in files]


def recall_in(bench: Bench) -> Recall:
    """``list_recorded`` of the bench's store, which is not made for that."""

    def recall(kernel: str, target: str = "") -> list[Trial]:
        return list_recorded(bench.store, kernel, target) if bench.settings.home.exists() else []

    return recall


def list_recorded(store: Store, kernel: str, target: str = "") -> list[Trial]:
    """Earlier trials of a kernel's configs, for a target if one is named, that ended by themselves, the
    latest last.
    """
    query = TrialQuery(kernel=kernel, target=target, was_run=True, limit=MOST_RECORDED)
    known = REUSABLE | BUILD_FAILURES
    trials = reversed(store.list_trials(query))
    return [trial for trial in trials if is_screening(trial) and trial.outcome in known]


def tell_recorded(
    recorded: Iterable[Trial],
    devices: Sequence[Device],
    space: OpenSpace,
    goals: Goals = TIME_ALONE,
) -> None:
    """Let a strategy that learns know of trials for its target: of this space's points, on such devices."""
    silicon = {"", *(device.identity for device in devices)}
    for trial in recorded:
        is_alike = trial.arguments == space.arguments and trial.silicon in silicon
        if is_alike and space.points.find(trial.config) is not None:
            space.tell(goals.judge(replace(trial, reused=True)))


def split_recorded(
    recorded: Iterable[Trial], target: str, silicon: Collection[str], space: OpenSpace
) -> tuple[list[Trial], list[Trial]]:
    """Trials for this target, silicon and arguments; and for others: on GPUs also for other architectures."""
    takes_any, kind = find_needs(target).native, target.partition(":")[0]
    own, others = [], []
    for one in recorded:
        is_same = one.target == target
        if is_same and one.arguments == space.arguments and one.silicon in ("", *silicon):
            own.append(one)
        elif one.silicon and (is_same or (takes_any and one.target.partition(":")[0] == kind)):
            others.append(one)
    return own, others


@dataclass(frozen=True, kw_only=True)
class Near:
    """A config that won elsewhere, ``distance`` doublings away, and in what that differs."""

    config: Config
    distance: float
    is_here: bool
    where: str


def list_near(
    winners: Iterable[Choice],
    target: str,
    devices: Sequence[Device],
    space: OpenSpace,
    known: Sequence[Config] = (),
) -> list[Near]:
    """Winners for other arguments, silicon or targets of this kind that are points of the space and not
    ``known``, each config once, the nearest first.
    """
    silicon = {device.identity for device in devices}
    kind = target.partition(":")[0]
    found = []
    for one in winners:
        is_here = one.silicon in silicon and one.target == target
        is_own = is_here and one.arguments == space.arguments
        distance = measure_distance(one.arguments, space.arguments)
        is_alike = one.target.partition(":")[0] == kind and distance < math.inf
        if is_own or not is_alike or space.points.find(one.config) is None:
            continue
        differing = {k: v for k, v in one.arguments.items() if v != space.arguments[k]}
        words = [format_config(differing)]
        if not is_here:
            distance += ELSEWHERE
            words.append(f"on {one.silicon.partition(',')[0]}")
        where = " ".join(filter(None, words))
        found.append(Near(config=one.config, distance=distance, is_here=is_here, where=where))
    found.sort(key=lambda one: (one.distance, not one.is_here, one.where))
    nearest: dict[str, Near] = {}
    for near in found:
        nearest.setdefault(canonical_json(near.config), near)
    for config in known:
        nearest.pop(canonical_json(config), None)
    return list(nearest.values())[:MOST_NEAR]


def list_winners(recorded: Iterable[Trial], choices: Iterable[Choice]) -> list[Choice]:
    """The choices; and where no study has ended with one, the config of the fastest trial."""
    found: dict[str, Choice] = {}
    for trial in recorded:
        if trial.outcome not in WELL or trial.measurement is None or not trial.silicon:
            continue
        made = Choice(
            kernel=trial.kernel,
            arguments=trial.arguments,
            target=trial.target,
            silicon=trial.silicon,
            config=trial.config,
            tensors=(),
            latency_ns=trial.measurement.median_ns,
        )
        if made.latency_ns < found.setdefault(made.subject, made).latency_ns:
            found[made.subject] = made
    known = list(choices)
    chosen = {replace(one, file="").subject for one in known}
    return [*known, *(one for subject, one in found.items() if subject not in chosen)]
