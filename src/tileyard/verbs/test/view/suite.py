"""The result of a suite's run: counts, failures and their commands, and where the time went. Lists are cut
after a few lines and count the rest; what is no failure has a line per kind.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from tileyard.base.model import Outcome, Record
from tileyard.base.wording import count_of
from tileyard.show.words import (
    MESSAGE_LENGTH,
    STOPS,
    clean_line,
    format_seconds,
    outcome_style,
    why,
)
from tileyard.verbs.test.result.result import CaseVerdict, SuiteResult
from tileyard.verbs.test.view.words import (
    Report,
    Rerun,
    ask_about_references,
    describe_alike,
    describe_end,
    describe_time,
    failed_attempts,
    find_longest,
    find_telling,
    group_alike,
    group_by_kind,
    group_by_reason,
    log_of,
    rerun_command,
)

PASSING = frozenset({Outcome.PASSED, Outcome.UNCHECKED})
FEW = 5
"""Number of names if only the count matters."""
SHOWN = 20
"""Number of cases shown one by one."""
COUNT_WIDTH = 9
VERSION = 1
"""Raised if a reader of the last version would misread the file; new keys alone do not raise it."""


def print_suite(
    console: Console,
    result: SuiteResult,
    rerun: Rerun | None = None,
    rest: str = "",
    *,
    is_verbose: bool = False,
) -> None:
    """Print the essentials of a run, or if it ``is_verbose`` also why others are no failures. ``rerun`` gives
    a case's command, by default with the suite's path; ``rest`` says where to find the rest.
    """
    printer = _Printer(console, result, rerun or rerun_command(result.path), rest)
    printer.few = SHOWN if is_verbose else FEW
    printer.print()


class _Printer:
    def __init__(self, console: Console, result: SuiteResult, rerun: Rerun, rest: str) -> None:
        self._console = console
        self._result = result
        self._rerun = rerun
        trials = sum(len(verdict.attempts) for verdict in result.verdicts)
        self._rest = rest or f"tileyard trials --run {result.run} --rows {max(trials, 1)}"
        self._home = Path(result.home)
        self.few = FEW

    def print(self) -> None:
        result = self._result
        verdicts = result.verdicts
        self._print_counts()
        self._print_section("failed", result.failed, self._tell)
        self._print_section("failed by devices, queues or hosts", result.faults, self._tell)
        self._print_section("in quarantine, failed, not counted", result.spared, self._tell_spared)
        self._print_section("flaky", result.flaky, self._tell_flaky, is_joined=False)
        self._print_groups("never ran", [(v.case, why(v)) for v in result.never_ran])
        skipped = [v for v in verdicts if v.outcome is Outcome.SKIPPED]
        self._print_groups("skipped", [(v.case, v.message) for v in skipped])
        flagged = [v for v in verdicts if v.outcome in PASSING and v.message and not v.is_bad]
        self._print_groups(
            "passed, with something to look at", [(v.case, v.message) for v in flagged]
        )
        proofs = [(v.case, v.proof) for v in verdicts if v.proof]  # which were asked for
        self._print_groups("what decided whether cases are proven", proofs, is_asked=True)
        self._print_groups("left out", [(one.case, one.reason) for one in result.left_out])
        if result.uncovered:
            self._console.print()
            head = Text("families without a run", "bold") + f" ({len(result.uncovered)}): "
            self._say(self._name(head, result.uncovered))
        self._print_longest()
        self._print_end()

    def _print_counts(self) -> None:
        result = self._result
        self._say(
            Text.assemble(
                (f"suite {clean_line(result.suite)}", "bold"),
                f", policy {clean_line(result.policy)}" if result.policy else "",
                f": {count_of(len(result.verdicts), 'case')} in {format_seconds(result.seconds)}",
                f", run {result.run}",
            )
        )
        counts = result.count()
        rows = [
            *((counts[one], str(one), outcome_style(one)) for one in Outcome if counts[one]),
            (len(result.flaky), "of these flaky: passed after they had failed", "yellow"),
            (len(result.spared), "of these in quarantine: failed, not counted", "yellow"),
            (len(result.left_out), "left out", "dim"),
        ]
        for number, what, style in rows:
            if number:
                self._say(Text.assemble(f"{number:>{COUNT_WIDTH}}  ", (what, style)))

    def _print_section(
        self,
        title: str,
        verdicts: Sequence[CaseVerdict],
        tell: Callable[[CaseVerdict], None],
        *,
        is_joined: bool = True,
    ) -> None:
        if not verdicts:
            return
        self._head(title, len(verdicts))
        groups = group_alike(verdicts) if is_joined else [[one] for one in verdicts]
        for group in groups[:SHOWN]:
            if len(group) == 1:
                tell(group[0])
            else:
                self._tell_alike(group)
        more = [verdict for group in groups[SHOWN:] for verdict in group]
        if not more:
            return
        self._say(Text(f"and {len(more)} more:"), indent=2)
        kinds = Counter((v.outcome, v.testcase) for v in more).most_common()
        for (outcome, testcase), number in kinds[:FEW]:
            self._say(
                Text.assemble(
                    f"{number:>{COUNT_WIDTH}}  ",
                    (str(outcome), outcome_style(outcome)),
                    f" in {clean_line(testcase)}",
                )
            )
        if len(kinds) > FEW:
            others = sum(number for _, number in kinds[FEW:])
            self._say(Text(f"{others:>{COUNT_WIDTH}}  others"))
        self._say(Text(f"all of them: {self._rest}"), indent=2, is_kept=True)

    def _tell(self, verdict: CaseVerdict) -> None:
        """Print a failed case with what is needed to examine it and to run it again."""
        tried = len(verdict.attempts)
        self._say(
            Text.assemble(
                (str(verdict.outcome), outcome_style(verdict.outcome)),
                "  ",
                (clean_line(verdict.case), "bold"),
                f" ({tried} attempts)" if tried > 1 else "",
                f": {why(verdict)}",
            ),
            indent=2,
        )
        if verdict.where:
            self._fact("at", verdict.where)
        if (log := log_of(verdict, self._home)) is not None:
            self._fact("log", str(log))
        self._fact("rerun", self._rerun(verdict.case))

    def _tell_alike(self, group: Sequence[CaseVerdict]) -> None:
        """Cases that failed with one message: it once, the cases, and the one to look at first."""
        first = find_telling(group, self._home)
        outcome = (str(first.outcome), outcome_style(first.outcome))
        self._say(Text.assemble(outcome, f"  {describe_alike(group)}"), indent=2)
        self._say(_name_few([one.case for one in group], SHOWN), indent=4)
        if first.where:
            self._fact("at", first.where)
        if (log := log_of(first, self._home)) is not None:
            self._fact("log", str(log))
        self._fact("rerun", self._rerun(first.case))
        if len(group) > SHOWN:
            self._fact("all", self._rest)

    def _tell_spared(self, verdict: CaseVerdict) -> None:
        self._tell(verdict)
        if (spared := verdict.quarantine) is not None:
            text = f"{clean_line(spared.owner)} until {spared.until}: {clean_line(spared.reason)}"
            self._say(Text(f"owner  {text}", style="dim"), indent=4)

    def _tell_flaky(self, verdict: CaseVerdict) -> None:
        failed = failed_attempts(verdict)
        last = failed[-1]
        self._say(
            Text.assemble(
                (clean_line(verdict.case), "bold"),
                f": {verdict.outcome} at attempt {len(verdict.attempts)}, before that ",
                (str(last.outcome), outcome_style(last.outcome)),
                f": {clean_line(last.message, MESSAGE_LENGTH)}" if last.message else "",
            ),
            indent=2,
        )
        if last.log:
            self._fact("log", str(self._home / last.log))

    def _name(self, head: Text, names: Sequence[str]) -> Text:
        """A line with as many names as fit into it, at least one."""
        few = self.few
        while FEW >= few > 1 and (head + _name_few(names, few)).cell_len > self._console.width:
            few -= 1
        return head + _name_few(names, few)

    def _print_groups(
        self, title: str, cases: Sequence[tuple[str, str]], *, is_asked: bool = False
    ) -> None:
        """Print a line per kind or reason; all cases if that ``is_asked`` for."""
        if not cases:
            return
        self._head(title, len(cases))
        groups = (group_by_reason if is_asked or self.few > FEW else group_by_kind)(cases)
        for reason, names in groups[:SHOWN]:
            text = Text(f"{len(names):>{COUNT_WIDTH}}  {clean_line(reason)}: ")
            line = text + _name_few(names, len(names)) if is_asked else self._name(text, names)
            self._say(line, hang=COUNT_WIDTH + 2)
        if len(groups) > SHOWN:
            others = sum(len(names) for _, names in groups[SHOWN:])
            reasons = count_of(len(groups) - SHOWN, "other reason")
            self._say(Text(f"{others:>{COUNT_WIDTH}}  for {reasons}"))

    def _print_longest(self) -> None:
        longest = find_longest(self._result, FEW)
        if longest:
            self._head("longest", len(longest))
        for verdict, seconds, share in longest:
            text = f"{format_seconds(seconds):>12}  {share:>6.1%}  "
            self._say(Text(text + clean_line(verdict.case)), hang=len(text))

    def _print_end(self) -> None:
        result = self._result
        self._console.print()
        if result.makespan is not None and (time := describe_time(result.makespan)):
            self._say(Text.assemble(("time: ", "bold"), time))
        for note in result.notes[: self.few]:
            self._say(Text(clean_line(note), style="yellow"))
        if (more := len(result.notes) - self.few) > 0:
            self._say(Text(f"and {count_of(more, 'more note')}, with -v all", style="yellow"))
        if question := ask_about_references(result):
            self._say(Text(clean_line(question), style="yellow"), is_kept=True)
        if result.reason != "done":
            self._say(Text(STOPS[result.reason], style="yellow"))
        if wrong := describe_end(result):
            self._say(Text(f"FAILED: {wrong}", style="bold red"))
        elif result.reason == "done":
            unchecked = result.count()[Outcome.UNCHECKED]
            doubt = f", {count_of(unchecked, 'case')} unchecked: no reference" if unchecked else ""
            end = Text.assemble(("PASSED", "bold green"), (doubt, "yellow"))
            self._say(end)

    # ---- lines -----------------------------------------------------------------------------

    def _head(self, title: str, number: int) -> None:
        self._console.print()
        self._say(Text.assemble((title, "bold"), f" ({number})"))

    def _fact(self, name: str, text: str) -> None:
        """Print a path or a command that is never broken or shortened, so that it can be copied."""
        self._say(Text(f"{name:<6} {clean_line(text)}", style="dim"), indent=4, is_kept=True)

    def _say(self, text: Text, indent: int = 0, hang: int = 0, is_kept: bool = False) -> None:
        """Print text wrapped to the console's width; ``hang`` indents all lines but the first."""
        if is_kept:
            lines: Iterable[Text] = [text]
        else:
            lines = _wrap(self._console, text, indent, hang or 2)
        for line in lines:
            self._console.print(Text(" " * indent) + line, soft_wrap=True, highlight=False)


def _wrap(console: Console, text: Text, indent: int, hang: int) -> Iterable[Text]:
    """Lines that fit, broken at spaces: a word that is longer, as a path, stays whole."""
    room = max(console.width - indent - hang, 20)
    breaks: list[int] = []
    begin, left = 0, room + hang
    for word in re.finditer(r"\S+", text.plain):
        if word.start() > begin and cell_len(text.plain[begin : word.end()]) > left:
            begin, left = word.start(), room
            breaks.append(begin)
    for number, line in enumerate(text.divide(breaks)):
        line.rstrip()
        yield Text(" " * hang if number else "") + line


def _name_few(names: Sequence[str], few: int) -> Text:
    shown = ", ".join(clean_line(name) for name in names[:few])
    return Text(shown + (", ..." if len(names) > few else ""), style="dim")


class Summary(Record):
    """The whole file. ``counts`` has every outcome, including those of no case. ``failures`` fail the run;
    ``faults``, of devices, queues or hosts, would too; ``quarantined`` ones failed and do not gate; ``flaky``
    ones passed after failures.
    """

    version: int
    exit_status: int
    counts: dict[str, int]
    failures: tuple[str, ...]
    faults: tuple[str, ...]
    quarantined: tuple[str, ...]
    flaky: tuple[str, ...]
    result: SuiteResult


def summarize(result: SuiteResult) -> Summary:
    """The summary of a run."""
    counts = result.count()
    return Summary(
        version=VERSION,
        exit_status=result.exit_status,
        counts={str(outcome): counts[outcome] for outcome in Outcome},
        failures=tuple(verdict.case for verdict in result.failures),
        faults=tuple(verdict.case for verdict in result.faults),
        quarantined=tuple(verdict.case for verdict in result.spared),
        flaky=tuple(verdict.case for verdict in result.flaky),
        result=result,
    )


def write_summary(result: SuiteResult, report: Report) -> None:
    """Write the file. Raises UsageError if it cannot be written."""
    report.write((_encode(summarize(result)), b"\n"))


def _encode(summary: Summary) -> bytes:
    try:
        encoded = msgspec.json.encode(summary)
    except UnicodeEncodeError:
        # Names of files need not be text, and JSON is always text.
        plain = json.dumps(msgspec.to_builtins(summary), ensure_ascii=False)
        encoded = plain.encode("utf-8", "replace")
    return msgspec.json.format(encoded, indent=1)


"""Names of cases of a kind."""
