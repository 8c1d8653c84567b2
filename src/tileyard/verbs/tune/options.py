"""The options of ``tune``, and the requests to the engine that follow from them. Light to import."""

import contextlib
import difflib
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeAlias, TypedDict, get_args

import msgspec

from tileyard.base.errors import UsageError
from tileyard.base.model import (
    CheckPolicy,
    Draw,
    EdgeValues,
    Limits,
    Record,
    TimingPolicy,
    Value,
    Values,
)
from tileyard.base.wording import show_value
from tileyard.frontend.declare import WhereSource, list_rules
from tileyard.service.verbs import KernelVerb, Verb
from tileyard.show.kernel_options import (
    ArgumentChoices,
    ArgumentValues,
    Budget,
    BuildLimit,
    BundleFile,
    Checked,
    CheckSync,
    CompileWorkers,
    ConfigValue,
    ConfigValues,
    CpuLevel,
    DeviceNames,
    GoldenThreads,
    GroupSize,
    HostNames,
    MemoryLimit,
    Picture,
    PythonLimit,
    QueueLimit,
    Reference,
    Report,
    RequireCheck,
    Resume,
    RunLimit,
    Sanitize,
    ShapeName,
    ShapeNames,
    TargetName,
    check_reference,
    read_limits,
    target_at,
)
from tileyard.show.options import (
    FileOption,
    Home,
    NamesOption,
    NumberOption,
    Option,
    ShowProgress,
    Switch,
    Text,
    TimeOption,
    complete,
    fill,
    list_fields,
    list_given,
    read_options,
    usually,
)
from tileyard.show.values import (
    Configs,
    FilePath,
    Names,
    Number,
    Pairs,
    Repeats,
    Share,
    Time,
    parse_bytes,
    parse_share,
    read_configs,
    read_lists,
    read_names,
    read_path,
    read_repeats,
    read_text,
    read_values,
    refuse_unused,
)
from tileyard.targets.registry import find_needs

if TYPE_CHECKING:
    from tileyard.base.settings import Settings
    from tileyard.verbs.tune.result import StudyResult, TableResult  # noqa: F401

Shapes: TypeAlias = (
    str | os.PathLike[str] | Mapping[str, Mapping[str, object]] | Sequence[Mapping[str, object]]
)
"""A file, or sets of arguments, with names or without."""
Where = Callable[..., str]
"""The place of a key, as in ``where(2, "M")``; without keys that of the list."""
MOST = 10_000
USUAL_WITHIN = "5%"
MOST_TRIALS = 200
ALL_CONFIGS = 1_000_000
"""A limit that no space reaches, which selects every point of a space."""
TrialCount = Annotated[
    int, Option("Maximum number of configs to try.", least=1, default=MOST_TRIALS)
]

STRATEGY = "How configs are chosen, as `tileyard strategies` lists them"
Repetitions = Annotated[
    int,
    Option(
        "With recorded spaces: number of times to search, each with a seed.", default=50, least=1
    ),
]
InFlight = Annotated[
    int,
    Option("With recorded spaces: number of trials under way at once.", default=1, least=1),
]
OF_REPLAYS = (
    *("trials", "strategy", "bound", "pareto"),
    *("budget", "device_budget", "until_gain"),
)
"""The options of a study that count for recorded spaces, too."""
OF_SOURCES = (
    *("arg", "shape", "config", "space", "where", "inputs", "flops", "reference", "check_sync"),
    *(
        "target",
        "cpu_arch",
        "also_build",
        "build_limit",
        "python_limit",
        "compile_workers",
        "golden_threads",
        "group_size",
        "sanitize",
    ),
    *("shapes", "within", "seeds", "edge_values", "time_reference"),
)
"""The options without effect on configs that are already built."""


LIST, WEIGHT = "shape", "weight"


class Shape(Record):
    """Arguments to tune a kernel for, beside those of all shapes, and of the kernel's own shape ``declared``.

    ``weight`` is their frequency, in any unit. ``where`` is the beginning of messages about them.
    """

    arguments: dict[str, Value]
    weight: float = 1.0
    name: str = ""
    declared: str = ""
    where: str = ""


def read_shapes(given: object) -> tuple[Shape, ...]:
    """The shapes of a file, or of a list or mapping by name. Raises UsageError naming an error's place."""
    if isinstance(given, str | os.PathLike):
        # Half of the time that a command takes to start, for those that read no such file.
        from tileyard.base.places import Document, Place

        read_path(given, "--shapes")  # refuses empty text
        document = Document(Path(given))
        for key in document.table:
            if key != LIST:
                near = difflib.get_close_matches(key, [LIST], cutoff=0.5)
                hint = f"did you mean {LIST}?" if near else f"[[{LIST}]] begins each set"
                (Place(document=document) / key).fail("is not a key of a file of shapes", hint)
        listed = document.table.get(LIST, [])

        def where(*keys: str | int) -> str:
            return Place(document=document, keys=(LIST, *keys)).where

    else:
        listed = given

        def where(*keys: str | int) -> str:
            return "shapes" + "".join(f"[{key!r}]" for key in keys)

    shapes = tuple(itertools.islice(_read(listed, where), MOST + 1))
    if not shapes:
        raise UsageError(
            f"{where()}: there is no shape", f"[[{LIST}]] begins each set of arguments"
        )
    if len(shapes) > MOST:
        raise UsageError(f"{where()}: there are more than {MOST} shapes")
    return shapes


def cross_shapes(names: Iterable[str], axes: Mapping[str, Sequence[Value]]) -> tuple[Shape, ...]:
    """Each named set of arguments with each combination of values. Raises UsageError for too many."""
    named = tuple(dict.fromkeys(names)) or ("",)
    if len(named) * math.prod(map(len, axes.values())) > MOST:
        raise UsageError(f"--arg: there are more than {MOST} shapes")
    shapes = []
    for name, point in itertools.product(named, itertools.product(*axes.values())):
        arguments = dict(zip(axes, point, strict=True))
        options = [f"--shape {name}"] if name else []
        options += [f"--arg {key}={value}" for key, value in arguments.items()]
        where = " ".join(options)
        shapes.append(Shape(arguments=arguments, name=name, declared=name, where=where))
    return tuple(shapes)


def _read(listed: object, where: Where) -> Iterator[Shape]:
    is_named = isinstance(listed, Mapping)
    if not isinstance(listed, Mapping | Sequence) or isinstance(listed, str):
        raise UsageError(f"{where()}: {show_value(listed)} is not a list of shapes")
    for key, table in listed.items() if isinstance(listed, Mapping) else enumerate(listed):
        if not isinstance(table, Mapping):
            hint = f"[[{LIST}]] begins each set of arguments, [{LIST}.NAME] one with a name"
            named = f"{key}: " if is_named else ""
            raise UsageError(f"{where(key)}: {named}{show_value(table)} is not a table", hint)
        weight = table.get(WEIGHT, 1)
        is_number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not (is_number and 0 < weight < math.inf):
            raise UsageError(
                f"{where(key, WEIGHT)}: {WEIGHT} is {show_value(weight)}, and no number above 0"
            )
        axes = {
            name: _read_values(name, values, where(key, name))
            for name, values in table.items()
            if name != WEIGHT
        }
        for point in itertools.product(*axes.values()):
            yield Shape(
                arguments=dict(zip(axes, point, strict=True)),
                weight=float(weight),
                name=str(key) if is_named else "",
                where=where(key),
            )


def _read_values(name: object, given: object, where: str) -> tuple[Value, ...]:
    """The values of an argument: one, or each of a list."""
    listed = given if isinstance(given, list | tuple | range) else [given]
    for value in listed:
        if isinstance(value, Mapping | list | tuple | set):
            raise UsageError(f"{where}: {name} is {show_value(value)}, and no number or text")
    if not listed:
        raise UsageError(f"{where}: {name} is an empty list", "leave it out, or give it a value")
    return next(iter(read_lists({name: listed}, f"{where}:").values()))  # type: ignore[dict-item]


def _read_edges(given: Names, option: str) -> tuple[EdgeValues, ...]:
    """The named kinds of values, in their own order."""
    known = get_args(EdgeValues)
    asked = list(filter(None, ",".join(read_names(given)).split(",")))
    for name in asked:
        if name not in (*known, "all"):
            raise UsageError(f"{option} {name!r} is not one of {', '.join(known)}, all")
    return known if "all" in asked else tuple(kind for kind in known if kind in asked)


def _read_bounds(given: Pairs, option: str) -> dict[str, float]:
    """The most of each number, by name: a number, or a size. Raises UsageError."""
    values = read_values(given, option)
    return {name: _read_bound(f"{option} {name}", most) for name, most in values.items()}


def _read_bound(named: str, most: Value) -> float:
    with contextlib.suppress(UsageError, OverflowError):
        number = float(parse_bytes(most) if isinstance(most, str) else most)
        if 0 <= number < math.inf and not isinstance(most, bool):
            return number
    text = f"{named}: {show_value(most)} is neither a number of at least 0"
    raise UsageError(f"{text} nor a size such as 96KiB")


def _read_rules(given: WhereSource | None, _option: str) -> tuple[str, ...]:
    """The constraints among rules: functions stay in the caller's process. Raises UsageError."""
    return tuple(rule for rule in list_rules(given) if isinstance(rule, str))


def _read_gain(given: Share | None, option: str) -> float | None:
    """A share, None without one. Raises UsageError."""
    return None if given is None else parse_share(given, option)


UntilGain = Annotated[
    Share | None,
    Option(
        "End the screening once the strategy expects the best time to improve by less than this share.",
        metavar="PERCENT",
        read=_read_gain,
    ),
]


InputsName = Annotated[
    str | Callable[..., object] | None,
    Text("A function of the file that makes the inputs, as in tileyard.kernel.", read=read_text),
]


class StudyOptions(TypedDict, total=False):
    """The options of ``tune`` for one set of arguments."""

    from_: BundleFile
    arg: ArgumentChoices
    shape: ShapeNames
    config: ConfigValues
    default: Annotated[
        Pairs,
        Option(
            "The config to beat, where it differs from the defaults of the kernel's function.",
            metavar="KEY=VALUE",
            read=read_values,
        ),
    ]
    seed_config: Annotated[
        Configs,
        Option(
            "A config to try early, where it differs from the defaults of the kernel's function; repeatable.",
            metavar="KEY=VALUE,...",
            read=read_configs,
        ),
    ]
    space: Annotated[
        object,
        Option(
            "The configs to search, as in tileyard.kernel, in place of the kernel's own.",
            for_python=True,
        ),
    ]
    where: Annotated[
        str | Sequence[str | Callable[..., object]] | Callable[..., object] | None,
        Option(
            "A further rule that configs must meet, such as 'block_M * block_N <= 16384'; repeatable. Python "
            "also takes functions.",
            metavar="RULE",
            read=_read_rules,
        ),
    ]
    inputs: InputsName
    flops: Annotated[
        str | float | Callable[..., object] | None,
        Option(
            "The work of a launch in floating-point operations: a formula such as 2*M*N*K.",
            metavar="FORMULA",
            read=read_text,
        ),
    ]
    reference: Reference
    rtol: Annotated[
        Number | None,
        NumberOption("Relative tolerance, in place of the kernel's own."),
    ]
    atol: Annotated[
        Number | None,
        NumberOption("Absolute tolerance, in units of the output's root mean square, likewise."),
    ]
    check: Checked
    require_check: RequireCheck
    check_sync: CheckSync
    sanitize: Sanitize
    seeds: Annotated[
        int, Option("Number of input seeds on which the finalists are checked.", default=1, least=1)
    ]
    edge_values: Annotated[
        Names,
        Option(
            "Also check the finalists on inputs of zeros, tiny, largest, inf, nan, or all of these.",
            metavar="KIND,...",
            read=_read_edges,
        ),
    ]
    target: TargetName
    cpu_arch: CpuLevel
    devices: DeviceNames
    hosts: HostNames
    also_build: Annotated[
        Names,
        NamesOption(
            "Also report which configs can be built for a target such as cuda:sm_90a; repeatable.",
            metavar="TARGET",
        ),
    ]
    bound: Annotated[
        Pairs,
        Option(
            "The most that a number of the binary may be, such as shared_bytes=96KiB: what exceeds it is not "
            "timed, nor run but for --sanitize.",
            metavar="NAME=MOST",
            read=_read_bounds,
        ),
    ]
    pareto: Annotated[
        str,
        Text(
            "Find the Pareto set of latency and a number of the binary, such as workspace_bytes.",
            metavar="NAME",
        ),
    ]
    trials: TrialCount
    strategy: Annotated[str, Option(f"{STRATEGY}.", default="auto", metavar="NAME")]
    budget: Budget
    device_budget: Annotated[
        Time | None,
        TimeOption(
            "The same for the time that devices are held, all of them together, such as 60s."
        ),
    ]
    until_gain: UntilGain
    queue_limit: QueueLimit
    run_limit: RunLimit
    build_limit: BuildLimit
    python_limit: PythonLimit
    memory_limit: MemoryLimit
    resume: Resume
    finals: Annotated[
        bool,
        Switch("Only hold the finals of what is recorded: build and measure no other config."),
    ]
    overlap: Annotated[bool, Option("Build while other configs run.", default=True)]
    compile_workers: CompileWorkers
    golden_threads: GoldenThreads
    group_size: GroupSize
    warmup: Annotated[
        Repeats,
        Option(
            "Launches of a config before it is timed, as a number or a time: 25, 50ms.",
            metavar="N|TIME",
            read=read_repeats,
        ),
    ]
    repeat: Annotated[
        Repeats,
        Option(
            "Launches to time, as a number or a time limit: 100, 400ms; by default as many as "
            "the median needs.",
            metavar="N|TIME",
            read=read_repeats,
            flags=("--repeat", "--rep"),
        ),
    ]
    flush_l2: Annotated[
        bool, Switch("On GPUs: fill the L2 cache with other data before each timed launch.")
    ]
    graph: Annotated[
        bool, Switch("On GPUs: time captured graphs, without the overhead of the host.")
    ]
    time_reference: Annotated[
        bool, Switch("On CPUs: also time the reference, after the finals, and compare.")
    ]
    home: Home
    progress: ShowProgress


class TuneOptions(StudyOptions, total=False):
    """The options of ``tune``."""

    shapes: Annotated[
        Shapes | None,
        Option(
            "Tune for each set of arguments that a file lists, and make a dispatch table.",
            metavar="FILE",
        ),
    ]
    within: Annotated[
        Share | None,
        Option(
            f"For several shapes: how much slower than its best config a shape may be; by "
            f"default {USUAL_WITHIN}.",
            metavar="PERCENT",
            read=usually(USUAL_WITHIN, parse_share),
        ),
    ]


class ReplayOptions(TypedDict, total=False):
    """The options of ``tune`` for recorded spaces: with ``replay`` these and ``OF_REPLAYS`` count."""

    replay: Annotated[
        FilePath,
        FileOption(
            "Search the recorded space in a file, with no device: one of "
            "`tileyard trials export --as space`, T4, or a cache of Kernel Tuner."
        ),
    ]
    repetitions: Repetitions
    in_flight: InFlight


class TuneArguments(TuneOptions, ReplayOptions, total=False):
    """The options of ``tune`` on the command line."""

    png: Picture
    report: Report


class TuneRequest(Record):
    """One tuning run. ``kernel`` may be empty if the file has only one.

    ``overrides`` has values for tunable parameters, which replace the kernel's own; ``where`` has constraints
    besides the kernel's own. With ``keeps_default`` the kernel's default config, with the values of
    ``default``, and the one in use are tried first, and a winner must be clearly faster; each ``seed_config``
    comes next, with the same values where it has none. ``reference`` and
    ``inputs``, names of functions of its file, ``flops``, a formula over its arguments, and ``rtol`` and
    ``atol`` of its tolerance also replace the kernel's own. At most ``trials`` configs are tried, which the
    ``strategy`` of that name chooses from this ``seed``; all takes ``budget_s`` seconds, and holds devices
    for ``device_budget_s``: the screening ends so that the finals fit, and earlier if the strategy expects
    less gain than ``until_gain``, a share. ``finalists`` configs meet in up to ``rounds`` interleaved rounds
    before a winner is chosen, on a busy device up to ``meetings`` times. Finals that contradict the screening
    are held again after ``pause_s``, in all ``holdings`` times. With ``finals_only`` nothing is screened that
    is not recorded, and finals are held. With ``require_check`` a config wins only if its results were
    compared. It must also be right on the inputs of all ``draws``, and no fact of its binary may exceed the
    ``bounds``. With the name of a fact ``pareto`` the Pareto set of latency and that is found. ``check_sync``
    is as in a yard. If there is a target ``sanitized``, a config is timed only once its build for that is
    right; those builds are never timed.
    """

    kernel: str = ""
    arguments: dict[str, Value] = {}
    shape: str = ""
    overrides: dict[str, Values] = {}
    where: tuple[str, ...] = ()
    default: dict[str, Value] = {}
    seed_config: tuple[dict[str, Value], ...] = ()
    keeps_default: bool = False
    reference: str = ""
    inputs: str = ""
    flops: str = ""
    rtol: float | None = None
    atol: float | None = None
    trials: int = MOST_TRIALS
    strategy: str = "auto"
    bounds: dict[str, float] = {}
    pareto: str = ""
    budget_s: float | None = None
    device_budget_s: float | None = None
    until_gain: float | None = None
    check: CheckPolicy = CheckPolicy()
    timing: TimingPolicy = TimingPolicy()
    limits: Limits = Limits()
    finalists: int = 16
    rounds: int = 240
    meetings: int = 8
    holdings: int = 3
    pause_s: float = 10.0
    finals_only: bool = False
    seed: int = 0
    require_check: bool = False
    check_sync: bool | None = False
    draws: tuple[Draw, ...] = ()
    sanitized: str = ""
    time_reference: bool = False


def make_request(
    kernel: str,
    values: Mapping[str, Any],
    **others: Any,  # noqa: ANN401 - any fields
) -> TuneRequest:
    """The request for a kernel from what is read of its options, but for ``others``."""
    named = {
        "arguments": values["arg"],
        "overrides": values["config"],
        "limits": read_limits(values),
    }
    return fill(TuneRequest, values, kernel=kernel, **{**named, **others})


class StartTune(KernelVerb["StudyResult"], kw_only=True):
    """Begin a tuning run. A case waits for a device for ``queue_limit_s``.

    For the targets ``also_build`` the configs are built, and not run. With a ``bundle`` its configs are
    timed, for their target; there is no file then. ``title`` is the word that reports put before the
    kernel's name. If it ``chooses``, its winner is what the kernel runs with. ``fresh`` is as in a yard.
    """

    opener = "tileyard.verbs.tune.plan.opening:open_tune"
    result = "tileyard.verbs.tune.result:StudyResult"
    is_timing = True

    request: TuneRequest
    fresh: bool
    title: str = "tune"
    chooses: bool = True
    bundle: str = ""
    also_build: tuple[str, ...] = ()
    overlap: bool
    queue_limit_s: float


class StartTable(Verb["TableResult"], kw_only=True):
    """Begin tuning runs for many shapes, as one, and make the dispatch table.

    Each shape is ``within`` that share of its best time.
    """

    opener = "tileyard.verbs.tune.plan.opening:open_tables"
    result = "tileyard.verbs.tune.result:TableResult"

    tune: StartTune
    shapes: tuple[Shape, ...]
    within: float

    def settle(self, settings: "Settings") -> Self:
        """See ``Verb``."""
        return msgspec.structs.replace(self, tune=self.tune.settle(settings))


def check_replay(given: TuneArguments, *, is_named: bool) -> bool:
    """Whether a recorded space is searched. Raises UsageError for a kernel beside it, and for options
    without effect.
    """
    if given["replay"] is None:
        of_replays = list_given(ReplayOptions, given, list_fields(ReplayOptions))
        refuse_unused("without --replay", of_replays)
        return False
    if is_named:
        raise UsageError("--replay searches a file: no kernel is named beside it")
    others = [name for name in list_fields(TuneOptions) if name not in OF_REPLAYS]
    unused = {
        flag.replace("--", "--no-", 1) if value is False else flag: True
        for flag, value in list_given(TuneOptions, given, others).items()
    }
    refuse_unused("with --replay: nothing is built or run", unused)
    _check_goals(given)
    return True


def _check_goals(given: TuneOptions) -> None:
    """Raise UsageError for a gain to expect of two measures."""
    if given["pareto"]:
        refuse_unused("with --pareto", {"--until-gain": given["until_gain"]})


def check_subject(given: TuneOptions, *, is_named: bool) -> None:
    """Raise UsageError unless there is a kernel or a bundle, and for options that a bundle determines."""
    if is_named == (given["from_"] is not None):
        raise UsageError("name a kernel as FILE[::NAME], or with --from the bundle of one")
    if not is_named:
        of_sources = list_given(TuneOptions, given, OF_SOURCES)
        refuse_unused("with --from: its configs are built", of_sources)


def start_tune(file: str, kernel: str, given: TuneOptions) -> StartTune:
    """The verb for a file's kernel or a bundle; an empty file is this process. Raises UsageError."""
    options = complete(TuneOptions, given)
    values = read_options(TuneOptions, options)
    target, level, bundle = values["target"], values["cpu_arch"], values["from_"]
    names = values["shape"]
    if not options["check"]:
        refuse_unused("with --no-check", {"--rtol": options["rtol"], "--atol": options["atol"]})
    if options["finals"]:
        unused = {
            "--fresh": not options["resume"],
            "--also-build": options["also_build"],
            "--seed-config": options["seed_config"],
            "--until-gain": options["until_gain"],
        }
        refuse_unused("with --finals", unused)
    _check_goals(options)
    check_reference(
        options["reference"], check=options["check"], require_check=options["require_check"]
    )
    if options["hosts"]:
        unused = {"--time-reference": options["time_reference"]}
        refuse_unused("with --hosts: it would be timed on this host", unused)
    for option in ("flush_l2", "graph"):
        if options[option] and not bundle and not find_needs(target).is_timed_by_policy:
            raise UsageError(f"--{option.replace('_', '-')} is for GPUs, and not for {target}")
    request = make_request(
        kernel,
        values,
        # Several values, and several names, are shapes: see start_table.
        arguments={key: sizes[0] for key, sizes in values["arg"].items() if len(sizes) == 1},
        shape=names[0] if len(names) == 1 else "",
        check=CheckPolicy(enabled=options["check"]),
        timing=_make_timing(values),
        check_sync=False if bundle else options["check_sync"],  # its configs have no Program
        finals_only=options["finals"],
        bounds=values["bound"],
        keeps_default=True,
        draws=_list_draws(options["seeds"], values["edge_values"], check=options["check"]),
        sanitized=target_at(target, level, sanitize=True) if options["sanitize"] else "",
    )
    return fill(
        StartTune,
        values,
        request=request,
        target=target_at(target, level),
        file=file,
        bundle=bundle,
        reuse=options["resume"],
        fresh=not options["resume"],
    )


def start_table(start: StartTune, given: TuneOptions) -> StartTable | None:
    """The verb for all shapes, if there are any, from the verb for one. Raises UsageError."""
    options = complete(TuneOptions, given)
    values = read_options(TuneOptions, options)
    listed, names, sizes = options["shapes"], values["shape"], values["arg"]
    several = {key: points for key, points in sizes.items() if len(points) != 1}
    if listed is None and not several and len(names) < 2:
        refuse_unused("without --shapes or several sizes", {"--within": options["within"]})
        return None
    if names and listed is not None:
        raise UsageError("--shape and --shapes contradict each other: choose one")
    unproven = {"--seeds": options["seeds"] > 1, "--edge-values": options["edge_values"]}
    why = "with --shapes" if listed is not None else "with several shapes"
    single = {
        "--also-build": options["also_build"],
        "--time-reference": options["time_reference"],
        "--pareto": options["pareto"],
    }
    refuse_unused(why, {**single, **unproven})
    shapes = cross_shapes(names, several) if listed is None else read_shapes(listed)
    for shape in () if listed is None else shapes:
        for key in shape.arguments.keys() & sizes.keys():
            raise UsageError(f"{shape.where}: {key} is given with --arg, too")
    if listed is not None and several:
        key = next(iter(several))
        raise UsageError(
            f"--arg {key} has several values, and --shapes lists shapes", "put them there"
        )
    # What is built and where is the study's.
    return fill(StartTable, values, tune=start, shapes=shapes, target="", devices=())


def _list_draws(seeds: int, edges: tuple[EdgeValues, ...], *, check: bool) -> tuple[Draw, ...]:
    draws = [Draw(seed=seed) for seed in range(1, seeds)]
    draws += [Draw(edges=one) for one in edges]
    if draws and not check:
        option = "--edge-values" if draws[-1].edges else "--seeds"
        refuse_unused("with --no-check", {option: draws})
    return tuple(draws)


def _make_timing(values: Mapping[str, Any]) -> TimingPolicy:
    usual = TimingPolicy()
    warmup_launches, warmup_ns = values["warmup"]
    launches, max_ns = values["repeat"]
    return fill(
        TimingPolicy,
        values,
        warmup_launches=warmup_launches,
        warmup_ns=warmup_ns or usual.warmup_ns,
        launches=launches,
        max_ns=max_ns or usual.max_ns,
    )


class RunOptions(TypedDict, total=False):
    """The options of ``run``."""

    arg: ArgumentValues
    shape: ShapeName
    config: ConfigValue
    reference: Reference
    check: Checked
    require_check: RequireCheck
    check_sync: CheckSync
    target: TargetName
    cpu_arch: CpuLevel
    devices: DeviceNames
    debug: Annotated[bool, Switch("Build for gdb, and print how to step through the kernel.")]
    queue_limit: QueueLimit
    run_limit: RunLimit
    sanitize: Sanitize
    fresh: Annotated[bool, Switch("Compute the reference again, even if its result is stored.")]
    build_limit: BuildLimit
    python_limit: PythonLimit
    memory_limit: MemoryLimit


def start_run(file: Path, kernel: str, given: RunOptions) -> StartTune:
    """The verb for one config of the kernel of a file. Raises UsageError."""
    options = complete(RunOptions, given)
    values = read_options(RunOptions, options)
    target, level, debug = options["target"], options["cpu_arch"], options["debug"]
    check_reference(
        options["reference"], check=options["check"], require_check=options["require_check"]
    )
    for key, several in values["config"].items():
        if len(several) > 1:
            raise UsageError(
                f"--config {key} has {len(several)} values, and one config is run",
                "tileyard tune tries several",
            )
    sanitized = target_at(target, level, debug=debug, sanitize=True) if options["sanitize"] else ""
    request = make_request(
        kernel,
        values,
        trials=1,
        check=CheckPolicy(enabled=options["check"], closest=True),
        sanitized=sanitized,
    )
    return fill(
        StartTune,
        values,
        request=request,
        target=target_at(target, level, debug=debug),
        file=str(file),
        title="run",
        chooses=False,
        reuse=False,  # the config always runs
        overlap=True,
    )
