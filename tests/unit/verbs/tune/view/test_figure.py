"""Pictures of studies, replays and comparisons."""

import io
import sys
from pathlib import Path

import msgspec
import pytest
from matplotlib.figure import Figure
from PIL import Image
from tests.unit.show.test_views import result, trial
from tests.unit.verbs.tune.plan.recorded.recorded_spaces import make_valley

from tileyard.base.errors import UsageError
from tileyard.base.model import Outcome
from tileyard.cli.main import main
from tileyard.show.figure import CHANGE
from tileyard.verbs.tune.plan.recorded.files import write_space
from tileyard.verbs.tune.result import Incumbent, StudyResult
from tileyard.verbs.tune.view.figure import PANELS, draw_study, render_study

pytestmark = pytest.mark.slow


def make_grid(*, finals: bool = True) -> StudyResult:
    """A study of 20 configs of two parameters, of which four fail in two ways."""
    trials = []
    for number in range(20):
        a, b = divmod(number, 5)
        wrong = {4: Outcome.MISMATCH, 19: Outcome.COMPILE_ERROR}.get(number, Outcome.PASSED)
        wrong = Outcome.MISMATCH if number in (9, 14) else wrong
        median_ns = 0.0 if wrong is not Outcome.PASSED else 1e6 * (1 + a + 0.1 * b)
        config = {"a_$x$": a, "b": b, "same": "s"}
        one = trial(number, wrong, median_ns)
        exceeds = "registers" if number == 19 else ""
        trials.append(msgspec.structs.replace(one, config=config, exceeds=exceeds))
    found = msgspec.structs.replace(
        result(),
        trials=tuple(trials),
        best=trials[0],
        finals=tuple(
            msgspec.structs.replace(one, trial=trials[place].id, config=trials[place].config)
            for place, one in enumerate(result().finals)
        ),
        ended_s=tuple(float(number) for number in range(20)),
        rejected=7,
        incumbents=(Incumbent(name="the default", config=trials[1].config),),
    )
    return found if finals else msgspec.structs.replace(found, finals=(), control=None)


def list_texts(figure: Figure) -> list[str]:
    """All texts of a figure, of its parts, and of its axes."""
    parts = [figure, *figure.subfigs]
    found = [text for part in parts for text in (part.get_suptitle(), part.get_supxlabel())]
    for axes in figure.axes:
        found += [axes.get_title("left"), axes.get_xlabel(), axes.get_ylabel()]
        found += [text.get_text() for text in (*axes.texts, *axes.get_yticklabels())]
    return [text for text in found if text]


def test_a_study_is_drawn_as_four_panels() -> None:
    """With units, and with the number of configs that have no time, by the reason."""
    figure = draw_study(make_grid())
    assert [axes.get_title("left").partition(":")[0] for axes in figure.axes] == [
        "Best time so far in the screening; dots",
        "Finals",
        "Effects in the screening (share of variance)",
        "Best screened time of both, ms (x",
    ]
    texts = " ".join(list_texts(figure)).replace("\n", " ")
    assert "gemm M=8 cpu:0" in texts
    assert (
        "16 configs with a time; without: 7 rejected by `where`, 3 mismatch (why it failed), 1 too "
        "large (registers)" in texts
    )
    assert texts.count("time of a launch, ms") == 3
    assert figure.axes[0].child_axes[0].get_xticklabels()[-1].get_text() == "19 s"


def test_finals_name_what_differs_and_how_configs_compare() -> None:
    """The incumbent by its name; what all finalists share is on the axis."""
    figure = draw_study(make_grid(), ["finals"])
    assert {"b=0", "best", "the default: b=1", "tied"} <= set(list_texts(figure))
    assert "all: a_$x$=0 same=s" in figure.axes[0].get_xlabel()
    (best, *_) = figure.axes[0].lines
    assert best.get_color() == CHANGE


def test_without_finals_the_best_of_the_screening_are_drawn() -> None:
    """At most 12, and the title says of how many."""
    figure = draw_study(make_grid(finals=False), ["finals"])
    assert figure.axes[0].get_title("left") == "The best of the screening: 16 configs, the first 12"


@pytest.mark.parametrize("panel", PANELS)
def test_each_panel_is_drawn_alone(panel: str) -> None:
    """On the caller's axes."""
    own = Figure()
    assert draw_study(make_grid(), [panel], own.subplots()) is own


@pytest.mark.parametrize(
    ("panels", "with_axes", "message"),
    [
        (["maps"], False, "there is no panel 'maps' (there are: progress, finals, effects, map)"),
        ([], True, "axes have room for one panel (name one of progress, finals, effects, map)"),
        (["map"], False, "map has nothing to draw (fewer than two parameters have several values)"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(panels: list[str], with_axes: bool, message: str) -> None:
    """An unknown panel, axes for all of them, a map of one parameter."""
    with pytest.raises(UsageError) as refused:
        draw_study(result(), panels, Figure().subplots() if with_axes else None)
    assert str(refused.value) == message


def test_a_picture_is_800_dots_wide_for_each_kind_of_silicon() -> None:
    """A study of which nothing passed has a picture, too: its caption says why."""
    failed = msgspec.structs.replace(
        result(), trials=(trial(1, Outcome.MISMATCH),), best=None, finals=()
    )
    both = msgspec.structs.replace(make_grid(), others=(failed,))
    with Image.open(io.BytesIO(render_study(both))) as image:
        assert image.width == 1600


def test_replays_and_comparisons_are_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the commands, into a folder that is made; a comparison is a line per strategy. Where none can be is
    said before anything is replayed.
    """
    monkeypatch.chdir(tmp_path)
    write_space(make_valley(), tmp_path / "valley.jsonl")
    short = ["--repetitions", "3", "--png"]
    assert (
        main(["tune", "--replay", "valley.jsonl", "--strategy", "grid", *short, "new/a.png"]) == 0
    )
    assert capsys.readouterr().err == f"picture: {tmp_path}/new/a.png\n"
    for place in ("/proc/none.png", f"{tmp_path}/new"):
        assert main(["tune", "--replay", "valley.jsonl", *short, place]) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert f"cannot write {place}: " in printed.err
    both = ["--strategy", "grid", "--strategy", "random"]
    assert main(["strategies", "compare", "valley.jsonl", *both, *short, "b.png"]) == 0
    assert main(["tune", "--replay", "valley.jsonl", "--trials", "1", *short, "one.png"]) == 0
    sizes = {}
    for name in ("new/a.png", "b.png"):
        with Image.open(tmp_path / name) as image:
            sizes[name] = image.size
    assert sizes["new/a.png"][0] == sizes["b.png"][0] == 800
    assert sizes["new/a.png"][1] > sizes["b.png"][1]


def test_without_matplotlib_one_line_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before anything is read or run."""
    monkeypatch.delitem(sys.modules, "tileyard.verbs.tune.view.figure")
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    picture = tmp_path / "study.png"
    assert main(["tune", "--replay", "gone.jsonl", "--png", str(picture)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--png takes matplotlib" in line
    assert not picture.exists()


def test_several_shapes_have_no_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each has its own study: the option is refused."""
    kernels = tmp_path / "kernels.py"
    kernels.touch()
    assert main(["tune", str(kernels), "--arg", "M=1,2", "--png", "all.png"]) == 2
    assert "--png has no effect with several shapes" in capsys.readouterr().err
