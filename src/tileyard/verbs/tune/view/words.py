"""Sentences about a study as a whole: its devices, its finals, and what disturbed it."""

from collections.abc import Iterator

from rich.text import Text

from tileyard.base.model import Trial
from tileyard.base.wording import count_of
from tileyard.show.words import format_config
from tileyard.verbs.tune.result.records import Final, KeptOut, StudyResult

TIES = 3
"""Number of tied configs that are named with their ratios; the table has their times."""
BUSY_TEXT = "the machine was too busy to separate tied configs"


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


def say_leader(result: StudyResult, leader: Trial) -> str:
    """What the tuner of a script takes of a disturbed study."""
    taken = format_config(leader.config) or "its only config"
    return (
        f"tileyard: {result.kernel}: disturbed: {result.disturbances[-1]}. {taken} is taken,"
        " which was the best of its finals"
    )


def say_finals(result: StudyResult) -> list[Text]:
    """The winner, what is tied with it or slower, and the control."""
    lines = [
        Text(f"finals: {format_config(best.config)} is the best", style="dim")
        for best in result.finals[:1]
    ]
    if tied := [final for final in result.finals[1:] if final.tied]:
        many = f"{len(tied)} configs are tied with it"
        named = [f"{format_config(one.config)}, {_say_ratio(one)}" for one in tied[:TIES]]
        text = f"{many}: {'; '.join(named)}" + ("; ..." if len(tied) > TIES else "")
        if len(tied) == 1:
            text = f"{format_config(tied[0].config)} is tied with it: {_say_ratio(tied[0])}"
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
            alarm = "FALSE ALARM, read the finals with care"
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
    return lines


def _say_ratio(final: Final) -> str:
    return f"{final.ratio:.3f} x its time [{final.low:.3f}, {final.high:.3f}]"
