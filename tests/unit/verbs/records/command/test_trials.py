"""What ``tileyard trials export`` writes of studies, as spaces."""

from pathlib import Path

import pytest

from tileyard.artifacts.manifest import Manifest, publish
from tileyard.artifacts.objects import ObjectStore, canonical_json
from tileyard.base.model import BuildKey, Outcome
from tileyard.cli.main import main
from tileyard.store.trials import TrialStore
from tileyard.targets.own_sources import Reported
from tileyard.targets.registry import PROGRAM_FILE
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


PROGRAM = """\
def f(A: float32[m]):
    m: dim
    bx: grid[m // 16]

"""


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (PROGRAM, {"blocks": 4, "threads": 1, "registers": 40}),
        ("def f(A: unknown): pass\n", {"registers": 40}),
    ],
)
def test_what_is_known_before_a_run_is_written(
    folder: Path, text: str, facts: dict[str, int]
) -> None:
    """The work of a Program that can be read, and the figures of the binary."""
    objects = ObjectStore(folder / "home" / "objects")
    manifest = Manifest(
        kernel="built",
        target="cpu",
        fingerprint="",
        build=BuildKey("b"),
        binary="",
        files={PROGRAM_FILE: objects.put_bytes(text.encode())},
        details=canonical_json(Reported(facts={"registers": 40})),
    )
    publish(manifest, objects)
    with TrialStore.open(folder / "home") as store:
        store.record(make_trial("r3.0", kernel="built", arguments={"m": 64}, build="b"))
    assert main(["trials", "export", "built", "--as", "space", "-o", "out.jsonl"]) == 0
    (one,) = read_space("out.jsonl").configs
    assert {name: value for name, value in one.facts.items() if value} == facts


def test_nothing_to_write_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A study in which nothing was timed is no space; no file is made."""
    assert main(["trials", "export", "lost", "--as", "space", "-o", "out.jsonl"]) == 2
    said = capsys.readouterr().err
    assert said == "tileyard: none of these trials is a config of a study that was timed\n"
    assert not (folder / "out.jsonl").exists()
