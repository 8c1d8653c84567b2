"""What ``tileyard trials export`` writes of studies, as spaces."""

from pathlib import Path

import pytest

from tileyard.base.model import Outcome
from tileyard.cli.main import main
from tileyard.store.trials import TrialStore
from tileyard.testing.stores import make_trial
from tileyard.verbs.tune.plan.recorded.files import read_space


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a home in which a study was recorded for two shapes."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEYARD_HOME", str(home))
    with TrialStore.open(home) as store:
        for number, (size, block) in enumerate(((64, 16), (64, 32), (128, 16), (128, 32))):
            store.record(
                make_trial(
                    f"r1.{number}", arguments={"M": size}, config={"block": block}, build_s=1.5
                )
            )
        failed = {"outcome": Outcome.TIMEOUT, "measurement": None, "message": "60 s"}
        store.record(make_trial("r1.9", arguments={"M": 64}, config={"block": 64}, **failed))
        store.record(make_trial("r2.0", kernel="lost", outcome=Outcome.NOT_RUN, measurement=None))
    return tmp_path


@pytest.mark.parametrize("form", ["space", "t4"])
def test_each_study_becomes_a_file(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Several are numbered, and what each one holds is printed."""
    assert main(["trials", "export", "gemm", "--as", form, "-o", "out.json.gz"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "out-1.json.gz: 3 configs of gemm, M=64, cpu",
        "out-2.json.gz: 2 configs of gemm, M=128, cpu",
    ]
    first, second = read_space("out-1.json.gz"), read_space("out-2.json.gz")
    assert (first.header.arguments, second.header.arguments) == ({"M": 64}, {"M": 128})
    assert first.header.parameters == {"block": (16, 32, 64)}
    assert [one.outcome for one in first.configs] == ["passed", "passed", "timeout"]
    assert [one.build_s for one in second.configs] == [1.5, 1.5]
    assert first.configs[2].reason == "60 s"


def test_nothing_to_write_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A study in which nothing was timed is no space; no file is made."""
    assert main(["trials", "export", "lost", "--as", "space", "-o", "out.jsonl"]) == 2
    said = capsys.readouterr().err
    assert said == "tileyard: none of these trials is a config of a study that was timed\n"
    assert not (folder / "out.jsonl").exists()
