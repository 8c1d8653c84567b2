"""The options of ``tune``, and the verbs that they make."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypedDict, get_args

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import (
    ArgumentChoices,
    Budget,
    BuildLimit,
    BundleFile,
    Checked,
    CheckSync,
    CompileWorkers,
    ConfigValues,
    CpuLevel,
    DeviceNames,
    GoldenThreads,
    GroupSize,
    MemoryLimit,
    PythonLimit,
    QueueLimit,
    Reference,
    RequireCheck,
    Resume,
    RunLimit,
    Sanitize,
    ShapeNames,
    TargetName,
    check_reference,
    read_limits,
    read_python_limit,
    read_sizes,
    target_at,
)
from tileyard.show.options import (
    FileOption,
    Home,
    Option,
    ShowProgress,
    Switch,
    Text,
    complete,
    list_fields,
)
from tileyard.show.values import (
    Names,
    Number,
    Repeats,
    Share,
    parse_count,
    parse_factor,
    parse_share,
    read_choices,
    read_names,
    read_path,
    read_repeats,
    read_time_s,
    refuse_unused,
)
from tileyard.targets.registry import find_needs
from tileyard.verbs.tune.options.shapes import Shapes, cross_shapes, read_shapes

if TYPE_CHECKING:
    from tileyard.base.draws import Draw
    from tileyard.base.model import TimingPolicy
    from tileyard.verbs.tune.options.start import StartTable, StartTune

USUAL_WITHIN = "5%"
MOST_TRIALS = 200

TrialCount = Annotated[
    int, Option("Maximum number of configs to try.", least=1, default=MOST_TRIALS)
]


class StudyOptions(TypedDict, total=False):
    """The options of ``tune`` for one set of arguments."""

    from_: BundleFile
    arg: ArgumentChoices
    shape: ShapeNames
    config: ConfigValues
    space: Annotated[
        object,
        Option(
            "The configs to search, as in tileyard.kernel, in place of the kernel's own.",
            for_python=True,
        ),
    ]
    where: Annotated[
        Callable[..., object] | None,
        Option("Which configs of the space to use, likewise.", for_python=True),
    ]
    inputs: Annotated[
        str | Callable[..., object] | None,
        Text("A function of the file that makes the inputs, as in tileyard.kernel."),
    ]
    flops: Annotated[
        str | float | Callable[..., object] | None,
        Option(
            "The work of a launch in floating-point operations: a formula such as 2*M*N*K.",
            metavar="FORMULA",
        ),
    ]
    reference: Reference
    rtol: Annotated[
        Number | None,
        Option("Relative tolerance, in place of the kernel's own.", metavar="NUMBER"),
    ]
    atol: Annotated[
        Number | None,
        Option(
            "Absolute tolerance, in units of the output's root mean square, likewise.",
            metavar="NUMBER",
        ),
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
        ),
    ]
    target: TargetName
    cpu_arch: CpuLevel
    devices: DeviceNames
    also_build: Annotated[
        Names,
        Option(
            "Also report which configs can be built for a target such as cuda:sm_90a; repeatable.",
            metavar="TARGET",
        ),
    ]
    trials: TrialCount
    strategy: Annotated[
        str,
        Option(
            "How configs are chosen: random, or grid for the order of the space.",
            default="random",
            metavar="NAME",
        ),
    ]
    budget: Budget
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
        ),
    ]
    repeat: Annotated[
        Repeats,
        Option(
            "Launches to time, as a number or a time limit: 100, 400ms; by default as many as "
            "the median needs.",
            metavar="N|TIME",
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
        FileOption("Tune for each set of arguments that a file lists, and make a dispatch table."),
    ]
    within: Annotated[
        Share | None,
        Option(
            f"For several shapes: how much slower than its best config a shape may be; by "
            f"default {USUAL_WITHIN}.",
            metavar="PERCENT",
        ),
    ]


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


def check_subject(given: TuneOptions, *, is_named: bool) -> None:
    """Raise UsageError unless there is a kernel or a bundle, and for options that a bundle determines."""
    if is_named == (given["from_"] is not None):
        raise UsageError("name a kernel as FILE[::NAME], or with --from the bundle of one")
    fields = list_fields(TuneOptions)
    of_sources = {
        fields[name].flags[0].partition("/")[0]: value
        for name, value in given.items()
        if name in OF_SOURCES and value != fields[name].option.default
    }
    if not is_named:
        refuse_unused("with --from: its configs are built", of_sources)


def start_tune(file: str, kernel: str, given: TuneOptions) -> "StartTune":
    """The verb for a file's kernel or a bundle; an empty file is this process. Raises UsageError."""
    from tileyard.base.model import CheckPolicy
    from tileyard.verbs.tune.options.start import StartTune
    from tileyard.verbs.tune.result.records import TuneRequest

    options = complete(TuneOptions, given)
    reference, target, budget = options["reference"], options["target"], options["budget"]
    inputs, flops = options["inputs"], options["flops"]
    bundle = read_path(options["from_"])
    sizes, names = read_sizes(options["arg"]), read_names(options["shape"])
    if not options["check"]:
        refuse_unused("with --no-check", {"--rtol": options["rtol"], "--atol": options["atol"]})
    if options["finals"]:
        unused = {"--fresh": not options["resume"], "--also-build": options["also_build"]}
        refuse_unused("with --finals", unused)
    check_reference(reference, check=options["check"], require_check=options["require_check"])
    for option in ("flush_l2", "graph"):
        if options[option] and not bundle and not find_needs(target).is_timed_by_policy:
            raise UsageError(f"--{option.replace('_', '-')} is for GPUs, and not for {target}")
    request = TuneRequest(
        kernel=kernel,
        arguments={key: values[0] for key, values in sizes.items() if len(values) == 1},
        shape=names[0] if len(names) == 1 else "",
        overrides=read_choices(options["config"]),
        reference=reference if isinstance(reference, str) else "",
        inputs=inputs if isinstance(inputs, str) else "",
        flops="" if flops is None or callable(flops) else str(flops),
        rtol=parse_factor(options["rtol"], "--rtol"),
        atol=parse_factor(options["atol"], "--atol"),
        trials=options["trials"],
        strategy=options["strategy"],
        budget_s=None if budget is None else read_time_s("--budget", budget),
        check=CheckPolicy(enabled=options["check"]),
        timing=_read_timing(options),
        require_check=options["require_check"],
        check_sync=False if bundle else options["check_sync"],
        finals_only=options["finals"],
        draws=_list_draws(options),
        sanitized=target_at(target, options["cpu_arch"], sanitize=True)
        if options["sanitize"]
        else "",
        time_reference=options["time_reference"],
        limits=read_limits(options["run_limit"], options["build_limit"], options["memory_limit"]),
    )
    return StartTune(
        request=request,
        target=target_at(target, options["cpu_arch"]),
        devices=read_names(options["devices"]),
        file=file,
        bundle=bundle,
        also_build=read_names(options["also_build"]),
        reuse=options["resume"],
        fresh=not options["resume"],
        overlap=options["overlap"],
        compile_workers=options["compile_workers"],
        golden_threads=options["golden_threads"] or 0,
        python_limit_s=read_python_limit(options["python_limit"]),
        group_size=parse_count(options["group_size"], "--group-size"),
        queue_limit_s=read_time_s("--queue-limit", options["queue_limit"]),
    )


def start_table(start: "StartTune", given: TuneOptions) -> "StartTable | None":
    """The verb for all shapes, if there are any, from the verb for one. Raises UsageError."""
    from tileyard.verbs.tune.options.start import StartTable

    options = complete(TuneOptions, given)
    listed, within = options["shapes"], options["within"]
    names, sizes = read_names(options["shape"]), read_sizes(options["arg"])
    several = {key: values for key, values in sizes.items() if len(values) != 1}
    if listed is None and not several and len(names) < 2:
        refuse_unused("without --shapes or several sizes", {"--within": within})
        return None
    if names and listed is not None:
        raise UsageError("--shape and --shapes contradict each other: choose one")
    unproven = {"--seeds": options["seeds"] > 1, "--edge-values": options["edge_values"]}
    why = "with --shapes" if listed is not None else "with several shapes"
    single = {"--also-build": options["also_build"], "--time-reference": options["time_reference"]}
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
    return StartTable(
        tune=start,
        shapes=shapes,
        within=parse_share(USUAL_WITHIN if within is None else within, "--within"),
        golden_threads=start.golden_threads,
        python_limit_s=start.python_limit_s,
    )


def _list_draws(options: TuneOptions) -> "tuple[Draw, ...]":
    from tileyard.base.draws import Draw, EdgeValues

    draws = [Draw(seed=seed) for seed in range(1, options["seeds"])]
    known = get_args(EdgeValues)
    asked = ",".join(read_names(options["edge_values"])).split(",")
    for name in filter(None, asked):
        if name not in (*known, "all"):
            raise UsageError(f"--edge-values {name!r} is not one of {', '.join(known)}, all")
    draws += [Draw(edges=edges) for edges in known if edges in asked or "all" in asked]
    if draws and not options["check"]:
        option = "--edge-values" if draws[-1].edges else "--seeds"
        refuse_unused("with --no-check", {option: draws})
    return tuple(draws)


def _read_timing(options: TuneOptions) -> "TimingPolicy":
    from tileyard.base.model import TimingPolicy

    usual = TimingPolicy()
    warmup_launches, warmup_ns = read_repeats("--warmup", options["warmup"])
    launches, max_ns = read_repeats("--repeat", options["repeat"])
    return TimingPolicy(
        warmup_launches=warmup_launches,
        warmup_ns=warmup_ns or usual.warmup_ns,
        launches=launches,
        max_ns=max_ns or usual.max_ns,
        flush_l2=options["flush_l2"],
        graph=options["graph"],
    )
