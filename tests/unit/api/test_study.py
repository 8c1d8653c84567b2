"""What a study gives to a notebook: one table, a DataFrame, a figure."""

import math
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from matplotlib.figure import Figure
from rich.text import Text
from tests.unit.show.test_views import result, trial

from tileyard.api.study import Study
from tileyard.base.errors import UsageError
from tileyard.base.model import Outcome
from tileyard.base.settings import Settings
from tileyard.show.notebook import LINES, NotebookView
from tileyard.verbs.tune.result import StudyResult


def make_study(found: StudyResult, home: Path) -> Study:
    """A study as ``tune`` returns it."""
    return Study(found, Settings(home=home, lock_dir=home, cores=(0,)))


def make_many(count: int) -> StudyResult:
    """A study of a number of configs that all passed."""
    trials = tuple(trial(number, Outcome.PASSED, 1e6 * number) for number in range(1, count + 1))
    return msgspec.structs.replace(result(), trials=trials, best=trials[0], finals=(), control=None)


@pytest.mark.slow
def test_the_trials_are_a_table_of_pandas(tmp_path: Path) -> None:
    """It has a column for each parameter and each finding; configs that were not measured have no time."""
    import pandas

    found = make_study(result(), tmp_path).trials
    columns = ["tile", "outcome", "median_ns", "low_ns", "high_ns", "gflops", "message", "trial"]
    assert isinstance(found, pandas.DataFrame)
    assert list(found) == columns
    assert list(found.trial) == [one.id for one in result().trials]
    assert math.isnan(found[found.outcome != "passed"].median_ns.iloc[0])
    assert found.median_ns.min() == result().best.measurement.median_ns  # type: ignore[union-attr]


def test_a_parameter_may_be_called_as_a_finding(tmp_path: Path) -> None:
    """Both have a column."""
    one = msgspec.structs.replace(trial(1, Outcome.PASSED, 1e6), config={"outcome": 3})
    found = make_study(msgspec.structs.replace(result(), trials=(one,)), tmp_path).trials
    assert (found.config_outcome[0], found.outcome[0]) == (3, "passed")


def test_without_pandas_the_trials_print_as_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the records themselves, of which the first 20 are shown."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    found: Any = make_study(make_many(23), tmp_path).trials
    lines = repr(found).splitlines()
    assert found == make_many(23).trials
    assert lines[1].split() == ["r.1", "tile=1", "1", "ms"]
    assert (len(lines), lines[-1]) == (23, "and 3 trials more")
    assert found._repr_html_().startswith("<pre")


def test_a_notebook_lists_twenty_configs(tmp_path: Path) -> None:
    """At most; the count below the table has all."""
    html = make_study(make_many(23), tmp_path)._repr_html_()
    assert sum(line.count(" ms ") for line in html.splitlines()) == 20
    assert "23 configs in" in html


@pytest.mark.slow
def test_the_plot_is_a_figure(tmp_path: Path) -> None:
    """Of all panels, or of those that are named, also on the caller's axes."""
    study = make_study(make_many(33), tmp_path)
    assert [axes.get_title("left") for axes in study.plot("finals", "progress").axes] == [
        "Best time so far; dots: each config",
        "The best of the screening: 33 configs, the first 12",
    ]
    assert len(study.plot().axes) == 3  # one parameter has no map
    own = Figure()
    assert study.plot("progress", axes=own.subplots()) is own


def test_a_plot_needs_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is missing one line says what to install."""
    monkeypatch.delitem(sys.modules, "tileyard.verbs.tune.view.figure", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(
        UsageError, match=r"^plot\(\) needs matplotlib: .*tileyard\[png\]' beside the checkout\)$"
    ):
        make_study(result(), tmp_path).plot()


def test_the_progress_in_a_notebook_shows_the_last_lines() -> None:
    """Earlier ones are counted: a space of configs that fail does not fill the page."""
    view = NotebookView()
    for number in range(LINES + 2):
        view.add(Text(f"line {number}"))
    shown = view._bundle()["text/plain"].splitlines()
    assert shown[:2] == ["2 earlier lines", "line 2"]
    assert len(shown) == LINES + 1
