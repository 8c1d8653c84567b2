"""What ``tileyard tune`` makes of its options before anything is started."""

from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import TimingPolicy
from tileyard.show.values import FilePath
from tileyard.verbs.tune.command import session
from tileyard.verbs.tune.command.tune import tune
from tileyard.verbs.tune.options import StartTune


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    """A file that is there."""
    path = tmp_path / "k.py"
    path.touch()
    return str(path)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[StartTune]:
    """What would have been started."""
    starts: list[StartTune] = []

    def run(start: StartTune, *, as_json: bool, png: FilePath, report: FilePath) -> int:
        starts.append(start)
        return 0

    monkeypatch.setattr(session, "run", run)
    return starts


def test_how_launches_are_timed_can_be_said(kernel: str, started: list[StartTune]) -> None:
    """Captured graphs and a flushed cache are parts of the policy by which all configs are timed."""
    tune(kernel, target="cuda:sm_90a")
    tune(kernel, target="cuda:sm_90a", graph=True)
    tune(kernel, target="cuda:sm_90a", flush_l2=True, graph=True)
    expected = [
        TimingPolicy(),
        TimingPolicy(graph=True),
        TimingPolicy(flush_l2=True, graph=True),
    ]
    assert [start.request.timing for start in started] == expected


def test_how_often_launches_are_timed_can_be_said(kernel: str, started: list[StartTune]) -> None:
    """A plain number counts launches, one with a unit is a time; what measures nothing is refused."""
    tune(kernel, warmup="25", repeat="100")
    tune(kernel, warmup="50ms", repeat="1s")
    expected = [
        TimingPolicy(warmup_launches=25, launches=100),
        TimingPolicy(warmup_ns=50_000_000, max_ns=1_000_000_000),
    ]
    assert [start.request.timing for start in started] == expected
    for options in ({"warmup": "0"}, {"repeat": "0ms"}, {"repeat": "often"}):
        with pytest.raises(UsageError, match=f"--{next(iter(options))}"):
            tune(kernel, **options)


def test_what_ends_a_screening_can_be_said(kernel: str, started: list[StartTune]) -> None:
    """A time that devices are held, and a gain that is too small: a share of more than 0 and less than 1."""
    tune(kernel, device_budget="60s", until_gain="2%")
    request = started[0].request
    assert (request.device_budget_s, request.until_gain, request.budget_s) == (60.0, 0.02, None)
    for gain in ("0%", "-1%", "200%", "little"):
        with pytest.raises(
            UsageError, match=r"--until-gain: .* is not a share above 0 and below 100 %"
        ):
            tune(kernel, until_gain=gain)
    with pytest.raises(UsageError, match="--until-gain has no effect with --finals"):
        tune(kernel, finals=True, until_gain="1%")


def test_a_cpu_knows_neither(kernel: str, started: list[StartTune]) -> None:
    """What a target would not heed is refused, and not left out."""
    for options, expected in (({"graph": True}, "--graph"), ({"flush_l2": True}, "--flush-l2")):
        with pytest.raises(UsageError, match=f"{expected} is for GPUs, and not for cpu"):
            tune(kernel, **options)
    assert started == []


def test_a_bundle_takes_the_place_of_a_kernel(kernel: str, started: list[StartTune]) -> None:
    """One of both, and no option that is decided by what was built: whatever target that is for."""
    tune(from_="space.tyb", graph=True, trials=3)
    assert (started[0].bundle, started[0].file) == (str(Path("space.tyb").absolute()), "")
    for subject, options, says in (
        (kernel, {"from_": "space.tyb"}, "name a kernel as .*, or with --from the bundle of one"),
        ("", {}, "name a kernel as .*, or with --from the bundle of one"),
        ("", {"from_": "s.tyb", "arg": ["M=1"]}, "--arg has no effect with --from"),
        ("", {"from_": "s.tyb", "target": "cuda:sm_80"}, "--target has no effect with --from"),
        ("", {"from_": "s.tyb", "group_size": "2"}, "--group-size has no effect with --from"),
    ):
        with pytest.raises(UsageError, match=says):
            tune(subject, **options)  # type: ignore[arg-type]  # a record, as a mapping
    assert len(started) == 1
