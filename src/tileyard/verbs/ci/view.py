"""Describes the work that jobs of a CI run duplicate, and a suite divided into jobs."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from tileyard.base.wording import count_of, shorten_path
from tileyard.show.console import new_table, print_table, say
from tileyard.show.words import clean_line, format_seconds
from tileyard.verbs.ci.plan.jobs import Matrix
from tileyard.verbs.ci.plan.jobs_duplicates import Duplicate, Duplicates, Finding, JobShare

SHORTER = 80
"""Maximum characters of a line about a command that is only listed."""
WIDEST = 400
"""Maximum characters of a line about a finding; JSON has all."""
LISTED = 20
"""Maximum number of names of duplicates, and of notes, in a list."""


def print_duplicates(console: Console, found: Duplicates) -> None:
    """Print a row per job, the checks that several jobs run, and the time saved by dropping them."""
    columns = ("job", "checks", "expected", "to drop", "saves", "")
    table = new_table(columns, left=("job", ""), wrapped=("job", ""))
    spots = (spot for finding in found.findings for spot in finding.spots)
    still = {spot.job for spot in spots if spot.still}
    for job in found.jobs:
        table.add_row(
            Text(clean_line(job.name)),
            str(job.checks),
            format_seconds(job.seconds),
            str(len(job.dropped) or ""),
            format_seconds(job.saves_s) if job.dropped else "",
            _say_state(job, is_needed=job.name in still),
        )
    print_table(console, table)
    told = {finding.identity for finding in found.findings}
    for line in _say_groups(one for one in found.duplicates if one.identity not in told):
        say(console, line)
    saved_s = {one.identity: one.saves_s for one in found.duplicates}
    for finding in found.findings:
        say(console, _say_finding(finding, saved_s.get(finding.identity, 0.0)))
        for line in _say_spots(finding):
            console.print(Text(f"  {clean_line(line, WIDEST)}"), soft_wrap=True)
    if found.unseen:
        places: dict[str, dict[str, None]] = {}
        for spot in found.unseen:
            places.setdefault(spot.command, {})[shorten_path(spot.where)] = None
        count = count_of(len(places), "command")
        say(console, f"not seen: {count} that may run tests; label them to compare them")
        for command, those in list(places.items())[:LISTED]:
            line = f"{clean_line(command, SHORTER)}: {', '.join(those)}"
            console.print(Text(f"  {clean_line(line, WIDEST)}"), soft_wrap=True)
        if len(places) > LISTED:
            say(console, f"  and {len(places) - LISTED} more, which --json lists")
    if found.also_independent:
        say(
            console,
            f"{count_of(len(found.also_independent), 'check')} of independent jobs run elsewhere too,"
            " which is left as it is",
        )
    say(console, _sum_up(found))


def print_matrix(console: Console, matrix: Matrix) -> None:
    """Print a row per job, and the cases that no job runs."""
    if matrix.jobs:
        texts = ("shard", "families")
        table = new_table(("shard", "cases", "expected", "families"), left=texts, wrapped=texts)
        for job in matrix.jobs:
            families = Text(clean_line(_shorten(job.families)))
            table.add_row(job.shard, str(job.cases), format_seconds(job.expected_s), families)
        print_table(console, table)
    for line in _facts_of(matrix):
        say(console, line)


def _say_state(job: JobShare, *, is_needed: bool) -> str:
    if job.is_independent:
        return "independent: left alone"
    return "nothing is left of it" if job.dropped and not job.rest and not is_needed else ""


def _say_groups(duplicates: Iterable[Duplicate]) -> Iterator[str]:
    """A line for all checks that the same jobs run and the same job keeps."""
    groups: dict[tuple[tuple[str, ...], str], list[Duplicate]] = {}
    for duplicate in duplicates:
        groups.setdefault((duplicate.jobs, duplicate.keeper), []).append(duplicate)
    for (jobs, keeper), group in groups.items():
        saves_s = sum(duplicate.saves_s for duplicate in group)
        names = _shorten([duplicate.name for duplicate in group], LISTED)
        yield (
            f"{' and '.join(jobs)} run the same {count_of(len(group), 'check')}: if only {keeper} does,"
            f" that saves {format_seconds(saves_s)}: {names}"
        )


def _say_finding(finding: Finding, saves_s: float) -> str:
    """The repeated work, the job that keeps it, and the time saved."""
    jobs = list(dict.fromkeys(spot.job for spot in finding.spots))
    is_guess = " (guessed)" if any(spot.is_guess for spot in finding.spots) else ""
    what = "this checkout" if finding.what == "." else clean_line(finding.what, WIDEST)
    if finding.kind == "copies":
        return (
            f"{what}: {count_of(len(finding.tests), 'name')} in both, {finding.differing} of them with"
            f" other content; {finding.keeper} has more"
        )
    said = {
        "build": f"built {len(jobs)} times: {what}",
        "label": f"done {len(jobs)} times, as labels say: {what}",
        "tests": f"{count_of(len(finding.tests), 'test')} run {len(jobs)} times: {what}",
    }.get(finding.kind, f"the same command in {len(jobs)} jobs: {what}")
    if not finding.together:
        costs = sum(spot.seconds for spot in finding.spots)
        return f"{said}; these jobs never run together, {format_seconds(costs)} in all{is_guess}"
    if finding.because:
        return f"{said}; {finding.because}, on {', '.join(finding.together)}"
    kept = f"keep it in {finding.keeper}" if finding.keeper else "left to independent jobs"
    return f"{said}; {kept}: that saves {format_seconds(saves_s)}{is_guess}, on {', '.join(finding.together)}"


def _say_spots(finding: Finding) -> Iterator[str]:
    for spot in finding.spots:
        condition = f", if {' and '.join(spot.conditions)}" if spot.conditions else ""
        command = f": {spot.command}" if spot.command else ""
        if finding.kind != "copies":
            still = f"; also on {', '.join(spot.still)}" if finding.together and spot.still else ""
            yield f"{shorten_path(spot.where)} {spot.job}{command}{condition}{still}"
    for name, texts in finding.differences.items() if not finding.because else ():
        yield f"{name}: {' | '.join(text or '-' for text in texts)}"


def _sum_up(found: Duplicates) -> str:
    if not found.duplicates and (found.unseen or any(one.together for one in found.findings)):
        return "nothing that is seen can be dropped: no job does it whenever and as others need it"
    if not found.duplicates:
        return "no check is run twice on identical content"
    if any(finding.together for finding in found.findings):
        guessed = f" ({found.guessed} of them guessed)" if found.guessed else ""
        return (
            f"{count_of(len(found.duplicates), 'thing')} done more than once{guessed}; doing each once saves"
            f" {format_seconds(found.saves_s)} of {format_seconds(found.seconds)}"
        )
    guessed = f" ({found.guessed} of them never ran: guessed)" if found.guessed else ""
    return (
        f"{count_of(len(found.duplicates), 'check')} run more than once on identical content{guessed};"
        f" running each once saves {format_seconds(found.saves_s)} of {format_seconds(found.seconds)}"
    )


def _facts_of(matrix: Matrix) -> Iterator[str]:
    jobs = count_of(len(matrix.jobs), "job")
    guessed = f" ({matrix.guessed} never ran: guessed)" if matrix.guessed else ""
    yield (
        f"{count_of(matrix.cases, 'case')} in {jobs}, {format_seconds(matrix.total_s)} of work{guessed}"
    )
    if matrix.jobs:
        longest_s = max(job.expected_s for job in matrix.jobs)
        mean_s = sum(job.expected_s for job in matrix.jobs) / len(matrix.jobs)
        yield f"the longest job takes {format_seconds(longest_s)}, the mean {format_seconds(mean_s)}"
    touched = matrix.touched
    if touched is not None:
        if touched.why_all:
            yield f"all cases stay: {touched.why_all}"
        else:
            yield f"left out: {count_of(matrix.left_out, 'case')} of which no input has changed"
        if touched.unnamed:
            yield (
                f"no step names {_shorten(touched.unnamed)}: say where they belong, with "
                f"`[[belongs]]` or --ignore"
            )
    for one in matrix.commands or ():
        because = f", because of {one.because}" if one.because else ""
        what = f"runs{because}" if one.is_touched else "is left out: no input of it has changed"
        yield f"{one.job} {what}: {one.command}"
    yield from (f"note: {note}" for note in matrix.notes[:LISTED])


def _shorten(names: Sequence[str], most: int = 8) -> str:
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
