"""The result of a tuning run, as a table and a few lines."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tileyard.artifacts.manifest import Build
from tileyard.base.model import WELL, Outcome, Trial, median_ns
from tileyard.base.wording import count_of, describe_unrecorded
from tileyard.measure.statistics import is_clearly_slower
from tileyard.show.console import MARKED, name_parameters, new_table, print_table, render
from tileyard.show.words import (
    ask_about_reference,
    clean_line,
    format_bytes,
    format_config,
    format_interval,
    format_rate,
    format_seconds,
    format_time,
    join_numbers,
    outcome_style,
)
from tileyard.verbs.tune.result import (
    CompileResult,
    Final,
    Incumbent,
    KeptOut,
    StudyResult,
    Tradeoff,
    name_binary,
    one_per_binary,
)
from tileyard.verbs.tune.view.compiled import count_ends, describe_reasons, group_failures, name_end

TIES = 3
"""Number of tied configs that are named with their ratios; the table has their times."""
FEW_ROUNDS = "too few undisturbed rounds"
BUSY_TEXT = "the machine was too busy to separate tied configs"
NOTEBOOK_WIDTH = 140
"""Width of a table in a notebook, in characters."""
BUILDS = "builds"
MARKS = {
    "*": "* clearly slower, abandoned early",
    "?": "? may be as fast as the best: it did not meet it",
}


def say_kept_out(one: KeptOut) -> str:
    """Why a device was not used."""
    end = "its times do not count"
    if one.message:
        return (
            f"{one.device}: the kernel that devices are compared by ended as {one.message}: {end}"
        )
    took = f"{one.ratio:.3f} x as long as {one.base} [{one.low:.3f}, {one.high:.3f}]"
    return f"{one.device} takes {took} for the same kernel: {end}"


def say_disturbances(result: StudyResult) -> Iterator[str]:
    """What other work disturbed, but for the contradiction that is left in a disturbed study."""
    yield from result.busy
    for why in result.disturbances[: -1 if result.disturbed else None]:
        yield f"{why}: other work disturbed one of them, and it was measured again"


def say_disturbed(result: StudyResult) -> str:
    """Why a disturbed study has no winner, and what may give it one."""
    return (
        f"disturbed, no order is named: {result.disturbances[-1]}. tileyard tune --finals holds the"
        " finals of what is recorded, --fresh measures all anew"
    )


def say_none(result: StudyResult) -> str:
    """Why there is no best config, in a few words."""
    passed = result.count(Outcome.PASSED)
    if not passed:
        return "no config passed"
    return (
        f"no best config: of {count_of(passed, 'config')} that passed none had all further checks"
    )


def say_leader(result: StudyResult, leader: Trial) -> str:
    """What the tuner of a script takes of a disturbed study."""
    taken = format_config(leader.config) or "its only config"
    return (
        f"tileyard: {result.kernel}: disturbed: {result.disturbances[-1]}. {taken} is taken,"
        " which was the best of its finals"
    )


def say_finals(result: StudyResult) -> list[Text]:
    """The winner, what is tied with it or slower, the control, and the incumbents."""
    lines = [
        Text(f"finals: {format_config(best.config)} is the best", style="dim")
        for best in result.finals[:1]
    ]
    if tied := [final for final in result.finals[1:] if final.tied]:
        many = f"{len(tied)} configs are"
        named = [f"{format_config(one.config)}, {_say_tie(one, result)}" for one in tied[:TIES]]
        if len(tied) == 1:
            many, named = f"{format_config(tied[0].config)} is", [_say_tie(tied[0], result)]
        little = f" ({say_bound(result)})" if result.least else ""
        more = "; ..." * (len(tied) > TIES)
        text = f"{many} tied with it{little}: {'; '.join(named)}{more}"
        lines.append(Text(f"finals: {text}", style="dim"))
    if slower := [final for final in result.finals if not final.tied]:
        others = (
            f"{count_of(len(slower), 'config')} slower, the first of them {_say_ratio(slower[0])}"
        )
        lines.append(Text(f"finals: {others}", style="dim"))
    if result.control is not None:
        control = result.control
        alarm = "no false alarm"
        if control.false_alarm:
            least = format_least(result)
            known = f"differences of less than {least} decide nothing"
            alarm = f"FALSE ALARM, {known if least else 'read the finals with care'}"
        if control.is_wide:
            alarm = BUSY_TEXT
            if control.reused:
                alarm += " (in an earlier run; --fresh measures again)"
        lines.append(
            Text(
                f"finals: A/A control {control.ratio:.3f} [{control.low:.3f}, {control.high:.3f}]: "
                f"{alarm}",
                style="dim",
            )
        )
    return lines + [Text(say_incumbent(one, result), style="dim") for one in result.incumbents]


def format_least(result: StudyResult) -> str:
    """The smallest difference that decided anything in the finals; empty if unknown."""
    return f"{100 * result.least:.3g} %" if result.least else ""


def say_bound(result: StudyResult) -> str:
    """Which intervals, of multiples of the winner's time, are ties."""
    return f"an interval that begins at {1 + result.least:.4g} x or below is a tie"


def lacks_rounds(final: Final, result: StudyResult) -> bool:
    """Whether a config is tied only because other work disturbed nearly all rounds."""
    return final.tied and final.low > 1 + result.least > 1


def say_incumbent(one: Incumbent, result: StudyResult) -> str:
    """How an incumbent compares with the winner."""
    named = f"{one.name}: {format_config(one.config) or 'the only config'}"
    won = () if result.best is None else result.same_binary(result.best)
    if any(trial.config == one.config for trial in won):
        return f"{named} stays: none is clearly faster"
    said = one.problem or (_say_ratio(one.final) if one.final is not None else "")
    return f"{named}, {said}" if said else named


def _say_tie(final: Final, result: StudyResult) -> str:
    return _say_ratio(final) + f", {FEW_ROUNDS}" * lacks_rounds(final, result)


def _say_ratio(final: Final) -> str:
    return f"{final.ratio:.3f} x its time [{final.low:.3f}, {final.high:.3f}]"


ROWS, NOTEBOOK_ROWS = 10, 20
"""Maximum number of configs listed."""


def print_study(console: Console, result: StudyResult, home: Path, rows: int = ROWS) -> None:
    """Print the best configs, the verdict of the finals, and the paths of results."""
    for one in (result, *result.others):
        if any(trial.measurement for trial in one.trials):
            table, folded = _table(one, rows, is_one_of_several=bool(result.others))
            print_table(console, table, folded=folded, joins_equal=True)
        if one.pareto:
            print_table(console, _front(one))
        for line in list_lines(one, home):
            console.print(line, soft_wrap=True, highlight=False)


def render_study(result: StudyResult, home: Path) -> str:
    """The same as HTML, for notebooks."""
    show = partial(print_study, result=result, home=home, rows=NOTEBOOK_ROWS)
    return render(NOTEBOOK_WIDTH, show)[MARKED]


def print_reference(console: Console, latency_ms: float, reference_ms: float) -> None:
    """Print how long the reference takes, beside the best config."""
    console.print(_compare(reference_ms * 1e6, latency_ms * 1e6), soft_wrap=True, highlight=False)


def _compare(reference_ns: float, best_ns: float) -> Text:
    ratio = f"{reference_ns / best_ns:.3g} x the time of the best config"
    return Text(f"reference: {format_time(reference_ns)}, {ratio}")


def _table(
    result: StudyResult, rows: int, *, is_one_of_several: bool
) -> tuple[Table, dict[str, str]]:
    keys = list(dict.fromkeys(key for trial in result.trials for key in trial.config))
    work = f" {format_config(result.arguments)}" if result.arguments else ""
    place = f" on {result.silicon or result.device}" if is_one_of_several else ""
    title = f"{result.kernel}{work}{place}"
    table = Table(title=title, header_style="bold")
    table.add_column("", justify="right")
    figures = ("latency", "± 95 %", *(["GFLOP/s"] if result.flops else []))
    words = ("outcome", *(built.target for built in result.also_built))
    named = name_parameters(keys, {"", *figures, *words})
    for name in (*named, *figures):
        table.add_column(name, justify="right", no_wrap=True)
    for name in words:
        table.add_column(name, no_wrap=True)
    met = {final.trial for final in result.finals}
    still_open = find_open(result)
    marks = set()
    shown = rank_trials(result)[:rows]
    for number, trial in enumerate(shown, start=1):
        rank = "" if result.disturbed else str(number)
        same = result.same_binary(trial)
        row = [rank, *(_values(key, same) for key in keys)]
        measured = result.measurement_of(trial)
        took_ns = measured.median_ns if measured else 0.0
        is_abandoned = trial.id not in met and measured is not None and measured.abandoned
        is_open = name_binary(trial) in still_open
        mark = "?" if is_open else "*" * (is_abandoned and not result.disturbed)
        marks.add(mark)
        row.append(format_time(took_ns) + mark if took_ns else "")
        row.append(format_interval(measured) if measured else "")
        if result.flops:
            row.append(format_rate(result.flops, took_ns))
        outcome = Text(name_end(trial), style=outcome_style(trial.outcome))
        style = "bold" if result.best in same else ""
        others = (_builds(built, same) for built in result.also_built)
        table.add_row(*row, outcome, *others, style=style)
    captions = ["times of the screening, in no order"] if result.disturbed else []
    captions += [said] if (said := say_met(result, len(shown))) else []
    captions += [text for mark, text in MARKS.items() if mark in marks]
    table.caption = "\n".join(captions)
    return table, named


def find_open(result: StudyResult) -> frozenset[str]:
    """The binaries that may be as fast as the best one, which they did not meet."""
    if result.disturbed:
        return frozenset()
    finalists = {final.trial for final in result.finals}
    met = {name_binary(one) for one in result.trials if one.id in finalists}
    given_up = {
        one.id
        for one in result.trials
        if one.measurement is not None
        and one.measurement.abandoned
        and not is_clearly_slower(one.measurement)
    }
    unmet = given_up.union(result.unmet)
    return frozenset(name_binary(one) for one in result.trials if one.id in unmet) - met


def say_met(result: StudyResult, rows: int) -> str:
    """Which of so many rows, each a binary, have times of the finals, if any."""
    met = len({final.trial for final in result.finals})
    which = f"the first {met}: " if met < rows else ""
    return f"{which}times of the finals, which decided" if met else ""


def _front(result: StudyResult) -> Table:
    """The Pareto set, the fastest first."""
    keys = dict.fromkeys(key for one in result.pareto for key in one.config)
    figures = ("latency", "± 95 %", result.second)
    table = new_table((*name_parameters([*keys], figures), *figures), left=())
    table.title = f"Pareto set of latency and {result.second}"
    for one in result.pareto:
        took = format_time(one.measurement.median_ns), format_interval(one.measurement)
        amount = say_amount(result, one)
        table.add_row(*(str(one.config.get(key, "")) for key in keys), *took, amount)
    return table


def say_amount(result: StudyResult, one: Tradeoff) -> str:
    """The amount of the second measure."""
    is_size = result.second.endswith("_bytes")
    return format_bytes(one.amount) if is_size else f"{one.amount:.15g}"


def _values(key: str, trials: Sequence[Trial]) -> str:
    """The values of one parameter in configs with the same binary."""
    values = {trial.config.get(key, "") for trial in trials}
    return "|".join(map(str, sorted(values, key=lambda value: (type(value).__name__, value))))


def _builds(built: CompileResult, trials: Sequence[Trial]) -> Text:
    """How builds for another target ended, for configs with the same binary here, where they may differ."""
    found = [one for trial in trials if (one := built.find(trial.config)) is not None]
    words = [_say_build(one) for one in found]
    if len(set(words)) > 1:
        return Text(f"{words.count(BUILDS)} of {len(words)} build", style="yellow")
    return Text(words[0], style="" if words[0] == BUILDS else "yellow") if words else Text("")


def _say_build(one: Build) -> str:
    word = name_end(one)
    return BUILDS if word == Outcome.PASSED else word


def rank_trials(result: StudyResult) -> list[Trial]:
    """The winner, other finalists in their order, the rest by latency, failures last; in a disturbed study
    what is right is in no order. Of configs with one binary only the first is included.
    """
    order = {final.trial: number for number, final in enumerate(result.finals)}

    def place(trial: Trial) -> tuple[bool, float, float]:
        took_ns = 0.0 if result.disturbed else median_ns(trial)
        return trial.outcome not in WELL, order.get(trial.id, len(order)), took_ns

    return one_per_binary(sorted(result.trials, key=place))


def list_lines(result: StudyResult, home: Path) -> list[Text]:
    """The lines below the table of a study, the best config last."""
    seconds, ends = format_seconds(result.seconds), count_ends(result.trials)
    lines = [Text(f"{count_of(len(result.trials), 'config')} in {seconds}: {ends}")]
    if result.reused:
        lines[0].append(f"; {result.reused} known from earlier runs, not built or measured again")
    binaries = {trial.keys.binary for trial in result.trials if trial.keys.binary}
    alike = sum(bool(trial.keys.binary) for trial in result.trials) - len(binaries)
    if alike:
        lines.append(
            Text(
                f"{alike} of them have the binary of another config: measured once, in one row with it"
            )
        )
    if result.reason != "done":
        lines.append(Text(f"stopped early: {result.stopped or result.reason}", style="yellow"))
    lines += [Text(say_kept_out(one), style="yellow") for one in result.kept_out]
    lines += [
        Text(one, style="yellow")
        for one in (*say_disturbances(result), *map(clean_line, result.lost_hosts))
    ]
    lines += say_finals(result)
    lines += [line for built in result.also_built for line in _other_target(built)]
    if result.lost:
        text = f"{count_of(len(result.lost), 'config')} lost to devices, queues or the host"
        lines.append(Text(f"{text}: run again to try them", style="red"))
    if result.unrecorded:
        lines.append(Text(describe_unrecorded(result.unrecorded), style="red"))
    failed = group_failures(result.trials)
    if result.best is None and not result.disturbed:
        return [*lines, *_say_none(result, failed)]
    lines += describe_reasons("", [group for group in failed if len(group) > 1])
    if result.best is None:
        return [*lines, Text(say_disturbed(result), style="red")]
    if result.draws:
        lines.append(Text(f"also right on {', '.join(draw.name for draw in result.draws)}"))
    if result.best.id not in result.unrecorded:
        lines.append(Text(f"results: {home}   (tileyard trials, tileyard show {result.best.id})"))
        lines.append(Text(f'load it: kernel = tileyard.load("{result.best.id}")'))
    measured = result.measurement_of(result.best)
    if result.reference is not None and measured is not None:
        lines.append(_compare(result.reference.median_ns, measured.median_ns))
    lines.append(_best(result, result.best))
    return lines


def _say_none(result: StudyResult, failed: Sequence[Sequence[Build | Trial]]) -> Iterator[Text]:
    """Why no config passed; in one line if none is within a bound."""
    required = f"{result.unchecked}, and a check is required" if result.unchecked else ""
    if result.trials and result.count(Outcome.NOT_RUN) == len(result.trials):
        required = result.trials[0].message
    if len(failed) == 1 and len(failed[0]) == len(result.trials) and failed[0][0].exceeds:
        required = join_numbers([one.message for one in failed[0]])
    else:
        yield from describe_reasons("", failed)
    if question := ask_about_reference(result.trials, "configs"):
        yield Text(question, style="yellow")
    yield Text(": ".join(filter(None, (say_none(result), required))), style="red")


def list_doubts(result: StudyResult) -> list[str]:
    """What is not known of the winner."""
    is_busy = result.control is not None and result.control.is_wide
    doubts = [BUSY_TEXT] if is_busy else []
    if result.lost:
        known = count_of(len(result.trials) - len(result.lost), "config")
        doubts.append(f"the best of {known}: infrastructure lost {len(result.lost)}")
    doubts += ["infrastructure failed finals"] if result.are_finals_lost else []
    doubts += [result.unchecked] if result.unchecked else []
    return doubts


def _best(result: StudyResult, best: Trial) -> Text:
    """The last line: the winner, where it won, and what is not known of it."""
    others = [format_config(one.config) for one in result.same_binary(best) if one.id != best.id]
    same = f" (the same binary: {'; '.join(others)})" if others else ""
    doubts = list_doubts(result)
    for built in result.also_built:
        found = built.find(best.config)
        word = BUILDS if found is None else _say_build(found)
        doubts += [] if word == BUILDS else [f"{word} for {built.target}"]
    return Text.assemble(
        "best so far: " if result.reason == "interrupted" else "best: ",
        (format_config(best.config) or "its only config", "bold"),
        f"{same} on {result.silicon.partition(',')[0] or result.device}",
        ("".join(f", {doubt}" for doubt in doubts), "yellow"),
    )


def _other_target(built: CompileResult) -> list[Text]:
    """Why configs could not be built for a target, each reason once, and how many could."""
    lines = describe_reasons(f"{built.target}: ", group_failures(built.configs))
    builds = sum(one.outcome is Outcome.PASSED for one in built.configs)
    left = sum(one.outcome is Outcome.NOT_RUN for one in built.configs)
    text = f"{builds} of {count_of(len(built.configs), 'config')} build for {built.target}"
    if large := [one for one in built.configs if one.exceeds]:
        text += f"; {count_ends(large)}"
    text += f"; {left} not tried" if left else ""
    return [*lines, Text(text)]
