"""A verb that the house does not know runs through its public seams, with real processes."""

from pathlib import Path

import msgspec
import pytest
from tests.conftest import ROOT, CommandLine
from tests.e2e.race_verb import Raced
from tests.e2e.refusing_verb import MeetFullDisk, Refuse
from tests.e2e.warm_script import run_script

from tileyard.base.errors import HomeError, SickDeviceError
from tileyard.base.model import Outcome, Trial
from tileyard.base.settings import Settings
from tileyard.service.client import RunClient

pytestmark = pytest.mark.slow

KERNEL = '''
from amount import TIMES
import tilelang.language as T
import tileyard

@tileyard.kernel(reference=lambda A: A * 2.0**TIMES)
def scale(N=1 << 14):
    """A, doubled TIMES times."""

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=128) as _:
            x = T.alloc_fragment((N,), "float32")
            T.copy(A, x)
            for _ in T.serial(TIMES):
                for i in T.Parallel(N):
                    x[i] = x[i] * 2.0
            T.copy(x, B)

    return main
'''


CLIENT = """
from pathlib import Path
import msgspec
from tests.e2e.race_verb import Race
from tileyard.base.events import CaseEnded, RunStarted
from tileyard.service.client import RunClient
from tileyard.base.settings import Settings

folder, events = Path.cwd(), []
settings = Settings(home=folder / "home", lock_dir=folder / "locks", cores=(0,))
verb = Race(file=str(folder / "scale.py"), folders=(str(folder / "base"), str(folder / "head")))
raced = RunClient(verb, settings).run(events.append)
begun = sum(isinstance(event, RunStarted) for event in events)
trials = [event.trial for event in events if isinstance(event, CaseEnded)]
print(msgspec.json.encode((raced, begun, trials)).decode())
"""


def race(cli: CommandLine, base: str, head: str) -> tuple[float, list[Trial]]:
    """The ratio of a kernel with these numbers on either side, and how each case ended."""
    (cli.cwd / "scale.py").write_text(KERNEL)
    (cli.cwd / "client.py").write_text(CLIENT)
    for name, times in (("base", base), ("head", head)):
        (cli.cwd / name).mkdir()
        (cli.cwd / name / "amount.py").write_text(f"TIMES = {times}\n")
    cli.env["PYTHONPATH"] = str(ROOT)
    done = run_script(cli, cli.cwd / "client.py")
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()[-1]
    raced, begun, trials = msgspec.json.decode(printed, type=tuple[Raced, int, list[Trial]])
    assert begun == 1
    assert 1 <= raced.races <= 3
    return raced.ratio, trials


def test_two_sides_meet_in_one_run(cli: CommandLine) -> None:
    """A kernel from two environments is built twice, timed in turn, and judged: more work takes longer."""
    ratio, trials = race(cli, "1", "100")
    assert ratio > 1
    assert {trial.outcome for trial in trials} == {Outcome.PASSED}
    assert {trial.side for trial in trials} == {"base", "head"}
    assert len({trial.keys.build for trial in trials}) == 2
    assert len({(trial.device, trial.lease) for trial in trials[:2]}) == 1


def test_a_side_that_cannot_be_read_fails_alone(cli: CommandLine) -> None:
    """Its case says why, the other side passes, and the verb has its result all the same."""
    ratio, trials = race(cli, "1", "many")
    ended = {trial.side: trial.outcome for trial in trials}
    assert ended["head"] not in (Outcome.PASSED, Outcome.NOT_RUN)
    assert ended["base"] is Outcome.PASSED
    assert ratio == 0


def test_a_refusal_keeps_its_class(tmp_path: Path) -> None:
    """With its exit status, hint and all, although the engine that raises it is another process."""
    settings = Settings(home=tmp_path / "home", lock_dir=tmp_path / "locks", cores=(0,))
    with pytest.raises(SickDeviceError, match="it is in quarantine") as raised:
        RunClient(Refuse(), settings).run(lambda event: None)
    expected = 3
    assert (raised.value.exit_status, raised.value.hint) == (expected, "give it back")


def test_a_full_disk_is_no_bug_of_ours(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is told in one line wherever it is met, and not as a traceback."""
    settings = Settings(home=tmp_path / "home", lock_dir=tmp_path / "locks", cores=(0,))
    with pytest.raises(HomeError, match=r"^No space left on device: /somewhere/else$"):
        RunClient(MeetFullDisk(), settings).run(lambda event: None)
    assert capfd.readouterr().err == ""
