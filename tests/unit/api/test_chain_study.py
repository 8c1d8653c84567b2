"""What the tuner of a script is given of its study."""

from pathlib import Path

import msgspec
import pytest
from tests.unit.show.test_views import result

from tileyard.api import chain_study
from tileyard.base.settings import Settings
from tileyard.verbs.exec.plan.grounds import StudyOrder
from tileyard.workers.protocol import Failed


def test_of_a_disturbed_study_the_leader_of_its_finals_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what was the fastest in the screening; a line on stderr says so, also outside a terminal."""
    found, why = result(), "the finals took at least 9 x as long"
    disturbed = msgspec.structs.replace(
        found, best=None, finals=(), disturbed=True, disturbances=(why,), leader=found.trials[1]
    )
    monkeypatch.setattr(chain_study, "carry_on", lambda *_: lambda *_: disturbed)
    settings = Settings(home=tmp_path, lock_dir=tmp_path, cores=(0,))
    order = StudyOrder(kernel="gemm", arguments={}, configs=3, is_checked=True)
    nobody = Failed(message="nobody asks")
    studied = chain_study.run_study(settings, order, lambda _: nobody, chain_study.Manner())
    assert [trial.config["tile"] for trial in studied.trials] == [2, 1, 3]
    assert studied.latency_ns == 2.01e6
    said = "tile=2 is taken, which was the best of its finals"
    assert capsys.readouterr().err == f"tileyard: gemm: disturbed: {why}. {said}\n"
