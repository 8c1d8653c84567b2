"""``tileyard tune`` finds the fastest config of a kernel, ``tileyard demo`` that of a kernel of ours;
``tileyard run`` builds, runs, compares and times one config.
"""

import math
import sys
from collections import Counter
from functools import partial
from importlib.resources import files
from typing import Any, Unpack, cast

from tileyard.base.errors import UsageError
from tileyard.show.kernel_options import Emit, ShapeName, parse_kernel
from tileyard.show.options import complete, list_fields, read_options
from tileyard.show.typed import AsJson, KernelName
from tileyard.show.values import refuse_unused
from tileyard.verbs.tune.options import (
    RunOptions,
    TrialCount,
    TuneArguments,
    TuneOptions,
    check_replay,
    check_subject,
    start_run,
    start_table,
    start_tune,
)


def tune(kernel: KernelName = "", *, json: AsJson = False, **options: Unpack[TuneArguments]) -> int:
    """Find the fastest config of a kernel: every config is built, checked and timed.

    The kernel is a function decorated with @tileyard.kernel, @tilelang.jit or
    @tilelang.autotune. Its reference is a NumPy or torch function: it gets the kernel's inputs in
    parameter order and returns the outputs, or writes them in place.

    On devices of several kinds each config is timed on each kind, and each kind has a winner.

    With --also-build the configs are then built for other targets, with no device. One that cannot be
    built there is marked, and can still be the best here: the exit status is that of tuning.

    With --from the configs are those of a bundle: they are timed where there are neither sources nor
    TileLang.

    With --shapes, with several numbers in an --arg, or with several --shape, each shape has a study, all in
    one run. Then the fewest configs are chosen that serve each shape within --within of its best time, and
    written down as its choices.

    With --finals only the finals are held, of configs whose times are recorded: after a study that was
    disturbed, for example.

    With --replay a strategy searches a recorded space, in which the time of each config is known: nothing
    is built or run. It is repeated with different seeds. Regret is how much slower the best config found is
    than the best of the space, after 25, 50, 100 and 200 trials; the score is that of the package
    autotuning-methodology 1.1.0, where 0 is random search and 1 the best config at once. A trial costs
    what it did when it was recorded.

    With --png the study is drawn as well: the best time so far, the finals, the effect of each parameter, and
    a map of the two parameters that matter most. With --report all this and more is written as one HTML file,
    as `tileyard report` does later.

    Exit status: 0 a best config was found, on each kind of device and for each shape; 1 none passed, 2 bad
    usage, 3 infrastructure only, or other work disturbed the finals, 130 interrupted.
    """
    options = complete(TuneArguments, options)
    if check_replay(options, is_named=bool(kernel)):
        refuse_unused("with --replay: there is no run", {"--report": options["report"]})
        return _replay(read_options(TuneArguments, options), as_json=json)
    from tileyard.verbs.tune.command.session import run, run_table

    check_subject(options, is_named=bool(kernel))
    file, name = parse_kernel(kernel) if kernel else ("", "")
    given = cast(dict[str, object], options)
    study = cast(TuneOptions, {name: given[name] for name in list_fields(TuneOptions)})
    start = start_tune(str(file), name, study)
    table = start_table(start, study)
    if table is None:
        files = read_options(TuneArguments, options)
        return run(start, as_json=json, png=files["png"], report=files["report"])
    refuse_unused("with several shapes: each has its own study", {"--png": options["png"]})
    return run_table(table, as_json=json, report=options["report"])


def _replay(values: dict[str, Any], *, as_json: bool) -> int:
    """Replay what the options say on a recorded space, in this process and with no device."""
    from tileyard.show.opening import open_picture, present
    from tileyard.verbs.tune.plan.goals import Goals, check_facts
    from tileyard.verbs.tune.plan.recorded.files import read_space
    from tileyard.verbs.tune.plan.recorded.replaying import Arena
    from tileyard.verbs.tune.plan.strategies.base import check_strategy, make_strategy, require_gain
    from tileyard.verbs.tune.view.progress import show_replays
    from tileyard.verbs.tune.view.replay import print_replay

    name = values["strategy"]
    (check_strategy if values["until_gain"] is None else require_gain)(name)
    draw = open_picture(values["png"], "tileyard.verbs.tune.view.figure:render_replay")
    space, second = read_space(values["replay"]), values["pareto"]
    goals = Goals(bounds=values["bound"], second=second)
    check_facts(goals.options, space.measures, space.name or values["replay"])
    arena = Arena(space.within(goals.bounds), values["replay"], second)
    with show_replays(Counter({name: values["repetitions"]})) as begin:
        found = arena.replay(
            name,
            partial(make_strategy, name),
            repetitions=values["repetitions"],
            in_flight=values["in_flight"],
            trials=values["trials"],
            budget_s=_or_any(values["budget"]),
            device_budget_s=_or_any(values["device_budget"]),
            until_gain=values["until_gain"],
            begin=begin,
        )
    present(found, as_json, print_replay)
    draw(found, arena.space)
    return 0


def _or_any(budget_s: float | None) -> float:
    return math.inf if budget_s is None else budget_s


def demo(*, shape: ShapeName, trials: TrialCount, json: AsJson = False) -> int:
    """Tune a matrix multiplication that is part of Tileyard, on this machine's CPU.

    The kernel's file is named at the end. Copy it to begin a kernel of your own.

    Exit status: as of tileyard tune.
    """
    kernel = files("tileyard") / "demo" / "gemm.py"
    status = tune(str(kernel), shape=shape, trials=trials, json=json)
    print(
        f"The kernel is {kernel}: copy it, change it, and run tileyard tune on the copy.",
        file=sys.stderr,
    )
    return status


def run_config(
    kernel: KernelName, *, emit: Emit, json: AsJson = False, **options: Unpack[RunOptions]
) -> int:
    """Build one config of a kernel, run it, compare every output, and time it.

    For a correct output, the element closest to its tolerance is printed; for a wrong one, the worst
    element. Parameters without --config are as in the first config. Earlier builds and results of the
    reference are reused; the config always runs. With --debug the last line is the command that runs it
    again in gdb, up to the kernel's first statement.

    Exit status: 0 it passed, or there is no reference, 1 it failed, 2 bad usage, 3
    infrastructure only, 130 interrupted.
    """
    from tileyard.verbs.tune.command import session

    file, name = parse_kernel(kernel)
    start = start_run(file, name, options)
    debug = options.get("debug", False)
    if emit is not None and json:
        raise UsageError("--emit and --json both print on standard output: choose one")
    if debug and json:
        raise UsageError("--debug prints a command, which --json would leave out: choose one")
    return session.run_config(start, emit=emit, as_json=json, for_debugger=debug)
