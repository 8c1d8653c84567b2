"""Opens a kernel's space, and draws the configs that a study tries."""

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from tileyard.artifacts.objects import canonical_json
from tileyard.base.errors import KernelFileError, UsageError
from tileyard.base.events import Event, Note
from tileyard.base.model import TimingPolicy, Tolerance, Trial, Value, Values, sequence_of
from tileyard.base.wording import count_of, find_similar
from tileyard.engine.authors import Author
from tileyard.frontend.constraints import evaluate_formula
from tileyard.frontend.declare import PIPELINE, KernelInfo, guess_value, shape_arguments
from tileyard.passes.pipeline import TILELANG, choose_pipeline
from tileyard.targets.registry import find_needs
from tileyard.verbs.tune.options import TuneRequest
from tileyard.verbs.tune.plan.foresight import Foresight
from tileyard.verbs.tune.plan.rules import HINT, Ruled, rule_points
from tileyard.verbs.tune.plan.strategies.ahead import Ahead
from tileyard.verbs.tune.plan.strategies.base import (
    FOREIGN,
    Config,
    Points,
    Strategy,
    StrategyThread,
    make_strategy,
    require_gain,
)
from tileyard.workers.protocol import (
    AnswerT,
    CheckConfigs,
    DescribeKernels,
    ExpandSpace,
    Failed,
    Question,
    Space,
)

CHUNK = 256
MOST_IN_VAIN = 1 << 15
"""Configs that functions in ``where`` may reject before they accept one; constraints reject none."""
ASK_LIMIT_S = 60.0


class Asks(Protocol):
    """Answers questions about the kernels of one file."""

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """Ask one question."""
        ...


@dataclass(kw_only=True)
class OpenSpace:
    """The kernel to tune, its complete arguments, and the configs chosen so far by a ``strategy``, in order.

    ``size`` is the number of ``points`` that meet all constraints, of which at most ``wanted`` are tried;
    ``about`` says how many that is of how many, empty if there are no constraints. ``flops`` is 0 if not
    stated; ``file`` is the kernel's. ``tolerance``, ``timing`` and ``run_s`` are the kernel's own, if any, as
    in a KernelInfo. ``guessed`` names the arguments whose values nobody chose. Functions in ``where`` have
    rejected ``rejected`` of the ``asked`` configs; ``refusal`` is the message about one. Without ``asks``
    nothing is rejected, and without a strategy the configs are given. The named ``incumbents`` are tried
    first, and the ``seeds`` next; ``default`` is the kernel's own. ``origins`` says which of the seeds won
    where.
    """

    kernel: str
    arguments: dict[str, Value]
    size: int
    flops: float
    configs: list[Config] = field(default_factory=list)
    tolerance: Tolerance | None = None
    timing: TimingPolicy | None = None
    run_s: float = 0.0
    file: str = ""
    wanted: int = 0
    asks: Asks | None = None
    guessed: tuple[str, ...] = ()
    points: Points = field(default_factory=lambda: Points({}))
    strategy: Strategy | None = None
    about: str = ""
    asked: int = 0
    rejected: int = 0
    refusal: str = ""
    default: Config | None = None
    incumbents: tuple[tuple[str, Config], ...] = ()
    seeds: tuple[Config, ...] = ()
    origins: tuple[str, ...] = ()
    ended_early: dict[str, Trial] = field(default_factory=dict)
    """The trials of incumbents and seeds."""
    foresight: Foresight | None = None
    expected_gain: float | None = None
    """As the strategy last said; None before, and if it does not know."""
    thread: StrategyThread = field(default_factory=StrategyThread)

    def __post_init__(self) -> None:
        if isinstance(self.strategy, Ahead):  # its process is a matter of the loop
            self.thread = StrategyThread(in_loop=True)

    async def begin_with(self, named: Iterable[tuple[str, Config]]) -> None:
        """Try these configs first, as far as ``where`` accepts them; the names of equal ones are joined."""
        found: dict[str, tuple[str, Config]] = {}
        for name, config in named:
            known = found.get(canonical_json(config), ("", config))[0]
            found[canonical_json(config)] = (" and ".join(filter(None, (known, name))), config)
        configs = tuple(config for _, config in found.values())
        accepted = await self._check(configs, counts=False)
        self.incumbents = tuple(itertools.compress(found.values(), accepted))
        others, self.configs = self.configs, [dict(config) for _, config in self.incumbents]
        self._add(others)

    async def try_early(self, seeds: Sequence[Config]) -> tuple[bool, ...]:
        """Try these points next after the incumbents, each once, as far as ``where`` accepts them; whether it
        does.
        """
        accepted = await self._check(tuple(seeds), counts=False) if seeds else ()
        count = len(self.incumbents)
        others = self.configs[count:]
        del self.configs[count:]
        valid = itertools.compress(seeds, accepted)
        self._add({canonical_json(config): config for config in valid}.values())
        self.seeds = tuple(self.configs[count:])
        self._add(others)
        return accepted

    def _add(self, configs: Iterable[Config]) -> None:
        """Add configs that are neither incumbents nor seeds, as many as are wanted."""
        early = (*(config for _, config in self.incumbents), *self.seeds)
        first = {canonical_json(config) for config in early}
        self.configs += (config for config in configs if canonical_json(config) not in first)
        del self.configs[self.wanted :]

    async def draw(self, count: int) -> None:
        """Ask for configs until there are ``count`` that ``where`` accepts, or no more to be had now."""
        width = 0
        while len(self.configs) < count and not self.is_whole and self.strategy is not None:
            if self.asked >= MOST_IN_VAIN and self.rejected == self.asked:
                return
            missing = count - len(self.configs)
            width = min(CHUNK, max(missing, 2 * width)) if self.strategy.learns else CHUNK
            proposed = await self.thread.ask(partial(self.strategy.ask, width))
            if self.foresight is not None:
                self.foresight.raise_error()  # it may have heard of it in place of this question
            self._wake()
            if not proposed:
                return
            accepted = await self._check(tuple(proposed))
            self._add(itertools.compress(proposed, accepted))
            for config in proposed:
                if (known := self.ended_early.get(canonical_json(config))) is not None:
                    self.thread.tell(partial(self.strategy.tell, known))  # it has no further trial
            for config in itertools.compress(proposed, map(operator.not_, accepted)):
                self.thread.tell(partial(self.strategy.reject, config))

    async def choose(self, *, everything: bool) -> None:
        """Draw all wanted configs, or keep only the first one."""
        if everything:
            await self.draw(self.wanted)
        else:
            del self.configs[1:]

    def tell(self, trial: Trial) -> None:
        """Let the strategy learn how a config ended."""
        if self.strategy is not None:
            if trial.config in (*(config for _, config in self.incumbents), *self.seeds):
                self.ended_early[canonical_json(trial.config)] = trial
            self.thread.tell(partial(self.strategy.tell, trial))
            self._wake()

    def want_gain(self) -> None:
        """Let the strategy say what gain it expects once it has learnt what it was told until now."""
        self.thread.tell(self._take_gain)

    def _take_gain(self) -> None:
        if self.strategy is not None:
            self.expected_gain = self.strategy.expected_gain

    async def settle(self) -> None:
        """Wait until the strategy has learnt what it was told, and has said what was wanted."""
        await self.thread.ask(lambda: None)

    def _wake(self) -> None:
        if self.foresight is not None:
            self.foresight.wake()

    async def begin_ahead(self, cores: tuple[int, ...], tell: Callable[[Event], None]) -> None:
        """Start the process of a strategy that has one. Raises WorkerStartError."""
        if isinstance(self.strategy, Ahead):
            text = (
                f"the process of the strategy {self.strategy.name} ended: other configs are random"
            )
            await self.strategy.begin(cores, lambda: tell(Note(text=text, level="warning")))

    async def end_ahead(self) -> None:
        """End what works ahead: no further config will be drawn. Repeatable."""
        if isinstance(self.strategy, Ahead):
            await self.strategy.close()
        if self.foresight is not None:
            await self.foresight.close()

    @property
    def is_whole(self) -> bool:
        """Whether no further config will be drawn."""
        is_over = self.strategy is None or self.strategy.is_exhausted
        return is_over or len(self.configs) >= self.wanted

    @property
    def learns(self) -> bool:
        """Whether results change what is proposed."""
        return self.strategy is not None and self.strategy.learns

    @property
    def at_most(self) -> int:
        """The number of configs, or its upper bound while not all are drawn."""
        return len(self.configs) if self.is_whole else min(self.wanted, self.size)

    async def _check(self, configs: tuple[Config, ...], *, counts: bool = True) -> tuple[bool, ...]:
        """Whether the kernel's ``where`` accepts each of these, which ``counts`` if they were proposed."""
        if self.asks is None:
            return (True,) * len(configs)
        check = CheckConfigs(kernel=self.kernel, arguments=self.arguments, configs=configs)
        reply = await _ask(self.asks, check)
        self.refusal = self.refusal or reply.refusal
        if counts:
            self.asked += len(configs)
            self.rejected += len(configs) - sum(reply.accepted)
        return reply.accepted

    def describe_start(self) -> str:
        """The configs that are tried first because they won elsewhere; empty if there are none."""
        count = len(self.origins)
        which = f"{count_of(count, 'config')} that won elsewhere {'is' if count == 1 else 'are'}"
        origins = ", ".join(dict.fromkeys(self.origins))
        return f"{which} tried first: {origins}" if count else ""

    def describe_choice(self) -> str:
        """The number of points and of valid ones, and how many are tried; empty if that goes without
        saying.
        """
        tried = len(self.configs)
        if not self.is_whole:
            asked = f"; `where` accepts {self.asked - self.rejected} of the first {self.asked}"
            known = self.about or f"{self.size:,} points"
            return f"{known}{asked if self.rejected else ''}; trying at most {self.wanted:,}"
        if not 1 < tried < self.size:
            return f"{self.about}; trying {'all' if tried > 1 else 'one'}" if self.about else ""
        why = (
            f"at most {self.wanted}"
            if tried == self.wanted
            else f"{self.rejected} excluded by `where`"
        )
        return f"{self.about and self.about + '; '}trying {tried} of {self.size:,} configs ({why})"


async def open_space(
    asks: Asks, request: TuneRequest, guess: int | None = None, targets: Sequence[str] = ()
) -> OpenSpace:
    """Find the kernel, complete its arguments, and draw the first configs: all of a small space.

    Arguments without a value get ``guess``, if given, or a dtype by their name. Raises KernelFileError or
    UsageError naming the mistake in the request, also for a pipeline that one of ``targets`` lacks.
    """
    check_numbers(request)
    described = await _ask(asks, DescribeKernels())
    info = choose_kernel(described.kernels, request.kernel)
    _check_draws(info, request)
    completed, guessed = _complete_arguments(info, request, guess)
    arguments = {key: value for key, value in completed.items() if key not in info.tunable}
    pinned = {key: (value,) for key, value in completed.items() if key in info.tunable}
    functions = {"reference": request.reference, "inputs": request.inputs}
    # The author also knows which types a parameter takes.
    is_given = bool(request.overrides or request.default)
    expand = ExpandSpace(
        kernel=info.name,
        arguments=arguments,
        functions={use: name for use, name in functions.items() if name},
        with_flops=guess is None,
    )
    try:
        space = await _ask(asks, expand)
        ruled = _find_points(info, space, {**pinned, **request.overrides}, arguments, request.where)
        points = ruled.points
        if PIPELINE not in info.parameters:
            _check_pipelines(points.values_of(PIPELINE), targets)
        ruled.require_any()
        opened = OpenSpace(
            kernel=info.name,
            arguments=arguments,
            size=points.size,
            wanted=request.trials,
            flops=evaluate_formula("--flops", request.flops, {**info.defaults, **arguments})
            or space.flops,
            tolerance=info.tolerance,
            timing=info.timing,
            run_s=info.run_s,
            file=info.file,
            asks=asks if space.asks_where or is_given or guessed else None,
            guessed=guessed,
            points=points,
            about=ruled.describe() if ruled.rules else "",
            strategy=choose_strategy(request, points),
            default=find_default(info, points),
        )
        await opened.draw(1)
    except KernelFileError:
        if guessed:  # the guess does not fit
            raise _missing(info, guessed) from None
        raise
    if not opened.configs:
        is_part = 0 < opened.asked < points.size
        which = (
            f"the first {opened.asked:,} of {points.size:,}" if is_part else f"all {points.size}"
        )
        text = f"no config of {info.name} is left to try: {which} are rejected"
        why = f": {opened.refusal}" if opened.refusal else ""
        raise UsageError(f"{text}{why}", HINT)
    return opened


def find_default(info: KernelInfo, points: Points) -> Config | None:
    """The point at which all parameters have the defaults of the kernel's function; one with a single value
    has that. None if there is no such point.
    """
    default = {}
    for name in points.names:
        values = points.values_of(name)
        own = {PIPELINE: TILELANG, **info.defaults}.get(name)
        if len(values) > 1 and own is None:
            return None
        default[name] = values[0] if len(values) == 1 or own is None else own
    return default if points.find(default) is not None else None


def check_numbers(request: TuneRequest) -> None:
    """Raise UsageError for limits that no config can satisfy."""
    limits = request.limits
    numbers = {
        "the budget": request.budget_s,
        "the device budget": request.device_budget_s,
        "the number of trials": request.trials,
        "the limit of a run": limits.run_s,
        "the limit of a build": limits.build_s,
        "the limit of an elaboration": limits.elaborate_s,
        "the limit of a reference": limits.golden_s,
        "the limit of memory": limits.memory_bytes,
    }
    for what, number in numbers.items():
        if number is not None and not 0 < number < math.inf:
            raise UsageError(f"{what} is {number:g}, which is enough for no config")
    for key, values in request.overrides.items():
        if not values:
            raise UsageError(f"no value is given to try for {key}")


def _check_draws(info: KernelInfo, request: TuneRequest) -> None:
    """Raise UsageError for inputs that the kernel's function does not make, or that nothing would be
    compared on.

    Also for a reference to time that there is not.
    """
    has_reference = bool(info.has_reference or request.reference)
    if request.time_reference and not has_reference:
        raise UsageError(f"--time-reference has no effect: {info.name} has no reference")
    for draw in request.draws:
        option = "--seeds" if draw.edges is None else "--edge-values"
        if not has_reference:
            raise UsageError(f"{option} has no effect: {info.name} has no reference")
        if draw.edges is not None and (info.inputs != "ours" or request.inputs):
            raise UsageError(f"{option} has no effect: {info.name} has a function for its inputs")
        if info.inputs == "given":
            text = f"{option} has no effect: the function for the inputs of {info.name}"
            raise UsageError(f"{text} takes no rng")


async def ask_about_first(
    author: Author,
    request: TuneRequest,
    make: Callable[[OpenSpace], Question[AnswerT]],
    limit_s: float,
    failed: str,
) -> AnswerT:
    """An author's answer to what is asked about a kernel's first config; the author ends with it. Raises
    UsageError: the kernel ``failed``.
    """
    try:
        space = await open_space(author, request)
        reply = await author.ask(make(space), limit_s)
    finally:
        await author.close()
    if isinstance(reply, Failed):
        raise UsageError(f"{space.kernel} {failed}: {reply.message}")
    return reply


async def _ask(asks: Asks, request: Question[AnswerT]) -> AnswerT:
    reply = await asks.ask(request, ASK_LIMIT_S)
    if isinstance(reply, Failed):
        raise KernelFileError(reply.message)
    return reply


def choose_kernel(kernels: Sequence[KernelInfo], name: str) -> KernelInfo:
    """The kernel called ``name``, or the only one. Raises KernelFileError, which lists the kernels."""
    known = [kernel.name for kernel in kernels]
    names = ", ".join(known)
    if name:
        for kernel in kernels:
            if kernel.name == name:
                return kernel
        raise KernelFileError(
            f"there is no kernel {name!r}",
            f"there are: {names}{_guess(name, known)}" if names else "",
        )
    if len(kernels) != 1:
        found = f"{count_of(len(kernels), 'kernel')}: {names}" if kernels else "no kernel"
        hint = "name one: FILE::NAME" if kernels else "use @tileyard.kernel or @tilelang.jit"
        raise KernelFileError(f"the file holds {found}", hint)
    return kernels[0]


def _complete_arguments(
    info: KernelInfo, request: TuneRequest, guess: int | None
) -> tuple[dict[str, Value], tuple[str, ...]]:
    """The named shape, else the first, with the user's arguments; and the names of guessed ones."""
    shape = shape_arguments(info, request.shape)
    for key, what in [(k, "argument") for k in request.arguments] + [
        (k, "config key") for k in request.overrides
    ]:
        is_pipeline = what == "config key" and key == PIPELINE
        if not (info.may_take(key) or is_pipeline):
            known = ", ".join(info.parameters) + _guess(key, info.parameters)
            raise UsageError(f"{info.name} has no {what} {key!r}", f"its parameters: {known}")
    for key in request.overrides.keys() & request.arguments.keys():
        raise UsageError(f"{key} of {info.name} is given as an argument and as a config key")
    arguments = {**shape, **request.arguments}
    varied = {*info.tunable, *request.overrides} - arguments.keys()
    missing = [key for key in info.required if key not in arguments and key not in varied]
    if missing and guess is None:
        raise _missing(info, missing)
    guesses = {key: guess_value(key, guess or 0) for key in missing}
    return {**guesses, **arguments}, tuple(missing)


def _check_pipelines(names: Sequence[Value], targets: Sequence[str]) -> None:
    """Raise UsageError for a pipeline that a target does not have."""
    for target, name in itertools.product(targets, names):
        if name != TILELANG and not find_needs(target).takes_pipelines:
            hint = f"--config {PIPELINE}={TILELANG} leaves it out"
            raise UsageError(
                f"{target} has no pipelines, so it cannot heed {PIPELINE}={name}", hint
            )
        choose_pipeline(str(name), target)


def _missing(info: KernelInfo, names: Sequence[str]) -> UsageError:
    return UsageError(
        f"{info.name} needs a value for {', '.join(names)}",
        f"give it with --arg {names[0]}=VALUE or --config {names[0]}=A,B,C",
    )


def _guess(word: str, known: Sequence[str]) -> str:
    """A suggestion, if there is a choice and one name is similar."""
    near = find_similar(word, known)
    return f"; did you mean {near}?" if near and len(known) > 1 else ""


def choose_strategy(request: TuneRequest, points: Points) -> Strategy:
    """The requested strategy for these points. Raises UsageError for one that there is not, or that does not
    know when to end, and ToolMissingError for one that cannot run here.
    """
    trials = request.trials
    if request.until_gain is not None:
        require_gain(request.strategy)
        # A strategy that may try everything need not choose, and this one is to end before.
        trials = max(1, min(trials, points.size - 1))
    make = Ahead if request.strategy in FOREIGN else make_strategy
    return make(request.strategy, points, trials=trials, seed=request.seed)


def _find_points(
    info: KernelInfo,
    space: Space,
    overrides: Mapping[str, Values],
    arguments: Mapping[str, Value],
    wanted: Sequence[str],
) -> Ruled:
    """The valid points of a space, with other values for some of its parameters."""
    axes = overrides if space.configs else {**space.axes, **overrides}
    chosen = {key: sequence_of(values) for key, values in axes.items()}
    return rule_points(info.name, space, chosen, {**info.defaults, **arguments}, wanted)
