"""Results of verbs as Python shows them: one line, and in a notebook what the command prints."""

from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.text import Text

from tileyard.base.model import Outcome, Record
from tileyard.base.wording import count_of
from tileyard.show.console import MARKED, render
from tileyard.show.words import clean_line, format_seconds
from tileyard.verbs.check.view.findings import SyncReport, describe_check
from tileyard.verbs.regress.result import Regression
from tileyard.verbs.regress.view.regress import find_headline, print_regression
from tileyard.verbs.test.plan.plan import Prediction
from tileyard.verbs.test.result.result import SuiteResult
from tileyard.verbs.test.view.plan import print_prediction
from tileyard.verbs.test.view.suite import print_suite
from tileyard.verbs.test.view.words import describe_end
from tileyard.verbs.tune.result import CompileResult
from tileyard.verbs.tune.view.compiled import count_ends, print_compiled
from tileyard.verbs.tune.view.study import NOTEBOOK_ROWS, NOTEBOOK_WIDTH

NOTEBOOK_LINES = 60
"""Maximum number of lines that a notebook shows of a check."""
T = TypeVar("T", bound="Shown")


class Shown:
    """A result with a line for people, and with a view for notebooks; neither has control sequences."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{clean_line(self.describe())}>"

    def _repr_html_(self) -> str:
        return render(NOTEBOOK_WIDTH, self.print)[MARKED]

    def describe(self) -> str:
        """The result in one line."""
        raise NotImplementedError

    def print(self, console: Console) -> None:
        """Print the view."""
        raise NotImplementedError


def make_shown(kind: type[T], result: Record) -> T:
    """The same result as this kind of it."""
    return kind(**{name: getattr(result, name) for name in result.__struct_fields__})


class ShownBuilds(Shown, CompileResult, frozen=True, kw_only=True):
    """The result of ``tileyard.compile``."""

    def describe(self) -> str:
        """How the configs ended."""
        return f"builds of {self.kernel} for {self.target}: {count_ends(self.configs)}"

    def print(self, console: Console) -> None:
        """The resources of a few configs, failures, and one line."""
        is_short = len(self.configs) <= NOTEBOOK_ROWS
        print_compiled(console, self, Path(), with_report=is_short)


class ShownChecks(Shown, SyncReport, frozen=True, kw_only=True):
    """The result of ``tileyard.check``."""

    def describe(self) -> str:
        """The number of mistakes."""
        found = sum(len(one.findings) for one in self.kernels)
        words = (
            f"{count_of(found, 'mistake') if found else 'no mistakes'}"
            f" in {count_of(len(self.kernels), 'config')}"
        )
        left = len(self.not_checked)
        return f"check of {self.file}: {words}" + (f", {left} not checked" if left else "")

    def print(self, console: Console) -> None:
        """The first lines of what the command prints."""
        lines = list(describe_check(self))
        for line in lines[:NOTEBOOK_LINES]:
            console.print(Text(line), soft_wrap=True, highlight=False)
        if (left := len(lines) - NOTEBOOK_LINES) > 0:
            more = f"and {count_of(left, 'more line')}: tileyard check {self.file}"
            console.print(Text(more, style="dim"), soft_wrap=True)


class ShownSuite(Shown, SuiteResult, frozen=True, kw_only=True):
    """The result of ``tileyard.test``."""

    def describe(self) -> str:
        """Counts, and what failed."""
        counts = self.count()
        words = ", ".join(f"{counts[one]} {one}" for one in Outcome if counts[one])
        wrong = describe_end(self)
        return f"suite {self.suite}, run {self.run}: {words}" + (f"; {wrong}" if wrong else "")

    def print(self, console: Console) -> None:
        """As after a run."""
        print_suite(console, self)


class ShownRegression(Shown, Regression, frozen=True, kw_only=True):
    """The result of ``tileyard.regress``."""

    def describe(self) -> str:
        """The most important result."""
        return f"regress {self.base} {self.head}: {find_headline(self)}"

    def print(self, console: Console) -> None:
        """As after a run."""
        print_regression(console, self)


class ShownPrediction(Shown, Prediction, frozen=True, kw_only=True):
    """The result of ``tileyard.plan``."""

    def describe(self) -> str:
        """The predicted time."""
        slots = count_of(self.plan.slots, "slot")
        return (
            f"plan of {count_of(self.cases, 'case')} on {slots}: {format_seconds(self.predicted_s)}"
        )

    def print(self, console: Console) -> None:
        """As the command does."""
        print_prediction(console, self)
