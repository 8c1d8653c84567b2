"""One bisection on the command line: a run of ``regress`` per tested commit, and their results."""

import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace
from rich.text import Text

from tileyard.base.errors import InterruptedRunError, UsageError
from tileyard.base.model import Record
from tileyard.base.wording import count_of
from tileyard.show.console import Console, say
from tileyard.show.kernel_options import read_limits
from tileyard.show.opening import load_settings, present
from tileyard.show.options import complete, fill, list_given, read_options
from tileyard.show.session import carry_on
from tileyard.show.values import refuse_unused
from tileyard.show.words import format_seconds
from tileyard.targets.registry import DEFAULT_TARGET, spell_target
from tileyard.verbs.regress.command.comparing import find_suite, read_gate
from tileyard.verbs.regress.command.comparing import run as compare
from tileyard.verbs.regress.options.regress import BisectOptions, read_measure
from tileyard.verbs.regress.options.start import RegressRequest
from tileyard.verbs.regress.plan.bisection import Answer, Bisection, Commit, Step
from tileyard.verbs.regress.plan.revisions import SHORT, Project
from tileyard.verbs.regress.plan.sought import SoughtChange, find_change, judge_commit
from tileyard.verbs.regress.result import (
    Gate,
    Regression,
    describe_change,
    format_change,
    parse_limits,
)


class Bisected(Record):
    """A bisection of so many ``commits``: ``suspects`` are the culprit, or all that it may be.
    ``is_confirmed``: the one suspect differs from its own parent. ``seconds`` are those of all tests.
    """

    good: str
    bad: str
    sought: SoughtChange
    commits: int
    steps: tuple[Step, ...]
    suspects: tuple[Commit, ...]
    is_confirmed: bool
    seconds: float


def make_request(good: str, bad: str, files: Sequence[str], given: BisectOptions) -> RegressRequest:
    """The comparison of the good revision with the bad one. Raises UsageError."""
    options = complete(BisectOptions, given)
    values = read_options(BisectOptions, options)
    fail_on = options["fail_on"]
    if fail_on:
        refuse_unused("with --fail-on, which runs nothing", {"--devices": options["devices"]})
    for_kernels = list_given(BisectOptions, options, ("select", "target", "fail_on"))
    gate = Gate(margin=values["margin"], limits=parse_limits(fail_on))
    return fill(
        RegressRequest,
        values,
        base=good,
        head=bad,
        files=tuple(files),
        scripts=options["exec"],
        measure=read_measure(files, values, for_kernels),
        target=spell_target(options["target"] or DEFAULT_TARGET),
        gate=read_gate(None, gate),
        case_s=values["each"],
        until="built" if fail_on else "confirmed",
        limits=read_limits(values),
    )


def run(asked: RegressRequest, *, as_json: bool) -> int:
    """Find the commit between ``asked.base`` and ``asked.head``; show it; return the exit status."""
    began = time.monotonic()
    console = Console(stderr=True)
    project = Project.of(Path(asked.files[0].partition("::")[0])) or Project.of(Path.cwd() / "any")
    if project is None:
        raise UsageError("a bisection needs a git repository; this folder is in none")
    commits = project.list_commits(asked.base, asked.head)
    if not commits:
        raise UsageError(f"there is no commit from {asked.base} to {asked.head}")
    sought = find_change(_compare(asked, asked.base, asked.head), asked.gate.limits)
    say(console, f"{describe_sought(sought)}; {count_of(len(commits), 'commit')}")
    if sought.kind == "fails":
        timed = replace(asked, case_s=0)
    else:
        # The first comparison has shown that the code's place is not the cause.
        timed = replace(
            asked,
            gate=Gate(margin=sought.margin),
            until="built" if asked.until == "built" else "timed",
        )
    good = project.find(asked.base)
    suite, _ = ("", "") if asked.scripts else find_suite(asked.files)
    if suite:
        timed = replace(timed, files=(f"{suite}::{sought.case}",), select=())
    elif asked.scripts:
        name = sought.case.partition("/")[0]
        timed = replace(timed, files=tuple(one for one in asked.files if Path(one).stem == name))

    def test(base: str, head: str) -> Answer:
        try:
            return judge_commit(sought, _compare(timed, base, head), is_parent=base != good)
        except UsageError as error:
            # For a suite or a script one side cannot be read, for kernels both, and the good revision's can.
            if not (suite or asked.scripts) and base == good:
                raise
            return Answer(has_it=None, why=error.message)

    bisection = Bisection(good, commits, sought.error, test)
    steps = []
    for step in bisection.run():
        steps.append(step)
        say(console, describe_step(step))
    found = Bisected(
        good=asked.base,
        bad=asked.head,
        sought=sought,
        commits=len(commits),
        steps=tuple(steps),
        suspects=bisection.suspects,
        is_confirmed=bisection.is_confirmed,
        seconds=time.monotonic() - began,
    )
    present(found, as_json, print_bisected)
    return 0 if len(found.suspects) == 1 else 1


def _compare(asked: RegressRequest, base: str, head: str) -> Regression:
    silent = Console(stderr=True)
    silent.quiet = True
    compared = compare(replace(asked, base=base, head=head), load_settings(), carry_on(silent))
    if compared.reason == "interrupted":
        raise InterruptedRunError("interrupted; builds are kept")
    return compared


# ---- words --------------------------------------------------------------------------------------


def describe_sought(sought: SoughtChange) -> str:
    """``gemm/default is slower: +4.10 %``."""
    if sought.figure is not None:
        return f"{sought.case}: {describe_change(sought.figure)}"
    if sought.kind == "fails":
        return f"{sought.case} fails: {sought.outcome or 'it cannot be read'}"
    return f"{sought.case} is {sought.kind}: {format_change(sought.ratio)} %"


def describe_step(step: Step) -> str:
    """The commit, whether it has the change, why, and how many suspects are left."""
    has_it = step.answer.has_it
    verdict = "cannot be tested" if has_it is None else _describe_probability(has_it)
    return (
        f"{_name(step.commit)}: {verdict} ({step.answer.why}); {count_of(step.suspects, 'suspect')}"
    )


def _describe_probability(has_it: float) -> str:
    if 0.1 < has_it < 0.9:
        return f"not clear, bad with {100 * has_it:.0f} %"
    return "bad" if has_it > 0.5 else "good"


def _name(commit: Commit) -> str:
    return f"{commit.sha[:SHORT]} {commit.subject}"


def print_bisected(console: Console, found: Bisected) -> None:
    """The culprit, or the suspects."""
    lines = _describe_found(found)
    for line in lines:
        console.print(Text(line), soft_wrap=True, highlight=False)


def _describe_found(found: Bisected) -> Sequence[str]:
    tested = f"{count_of(len(found.steps) + 1, 'test')} in {format_seconds(found.seconds)}"
    if len(found.suspects) > 1:
        names = [f"    {_name(commit)}" for commit in found.suspects]
        return (
            f"one of {count_of(len(names), 'commit')}, which no test can tell apart:",
            *names,
            tested,
        )
    confirmed = "" if found.is_confirmed else ", not confirmed against its parent"
    (culprit,) = found.suspects
    return (f"{_name(culprit)}: since then {describe_sought(found.sought)}{confirmed}", tested)
