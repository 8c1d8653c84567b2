"""Runs the studies of TileLang's tuners, like those of ``tileyard tune``, and shows them on stderr."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace
from rich.text import Text

from tileyard.api.kernels import carry_on, console_for, show
from tileyard.base.model import QUEUE_LIMIT_S, CheckPolicy, Limits, TimingPolicy, median_ns
from tileyard.base.settings import Settings
from tileyard.show.console import Console
from tileyard.verbs.exec.plan.grounds import Studied, StudyOrder, read_wishes
from tileyard.verbs.tune.options import StartTune, TuneRequest
from tileyard.verbs.tune.result import StudyResult
from tileyard.verbs.tune.view.progress import StudyLayout
from tileyard.verbs.tune.view.study import print_study, say_leader
from tileyard.workers.protocol import AuthorReply, AuthorRequest


@dataclass(frozen=True, kw_only=True)
class Manner:
    """Defaults that users do not choose: ``finalists``, ``rounds`` and ``check_sync`` of a TuneRequest."""

    target: str = "cpu"
    timing: TimingPolicy = TimingPolicy()  # noqa: RUF009 (a frozen record)
    queue_limit_s: float = QUEUE_LIMIT_S
    finalists: int = TuneRequest().finalists
    rounds: int = 60
    check_sync: bool | None = None


FOR_SCRIPTS = Manner(
    timing=TimingPolicy(max_ns=100_000_000),
    queue_limit_s=300.0,
    finalists=3,
    rounds=15,
    check_sync=False,
)
"""The defaults for scripts, which expect a GPU's times; their kernels are checked at the end."""


def run_study(
    settings: Settings,
    order: StudyOrder,
    answer: Callable[[AuthorRequest], AuthorReply],
    manner: Manner,
) -> Studied:
    """Run a study in a separate engine, and store it as ``tileyard tune`` does. Raises TileyardError."""
    wishes = read_wishes(os.environ, len(os.sched_getaffinity(0)))
    usual = Limits()
    request = TuneRequest(
        kernel=order.kernel,
        arguments=order.arguments,
        trials=order.configs,
        check=CheckPolicy(enabled=order.is_checked),
        timing=order.timing or manner.timing,
        limits=Limits(run_s=order.run_s or usual.run_s, build_s=wishes.build_s or usual.build_s),
        finalists=manner.finalists,
        rounds=manner.rounds,
        check_sync=manner.check_sync,
        meetings=1,  # the script waits for the result
        holdings=1,
    )
    start = StartTune(
        request=request,
        target=manner.target,
        devices=order.devices,
        file="",
        reuse=wishes.reuse,
        fresh=False,
        overlap=order.overlap,
        compile_workers=wishes.compile_workers,
        group_size=order.group_size or None,
        queue_limit_s=manner.queue_limit_s,
    )
    console = console_for(None)
    result = carry_on(console, answer)(start, settings, StudyLayout())
    show(console, print_study, result, settings.home)
    if result.leader is not None:  # also where no run is shown
        line = Text(say_leader(result, result.leader), style="yellow")
        Console(stderr=True).print(line, soft_wrap=True)
    return order_trials(result)


def order_trials(result: StudyResult) -> Studied:
    """The trials of a study, the winner first, or the leader of a disturbed one."""
    first = result.best or result.leader
    measured = None if first is None else result.measurement_of(first)
    won = "" if first is None else first.id
    timed = [replace(one, measurement=result.measurement_of(one)) for one in result.trials]
    trials = sorted(timed, key=lambda trial: (trial.id != won, median_ns(trial)))
    return Studied(trials=tuple(trials), latency_ns=0.0 if measured is None else measured.median_ns)
