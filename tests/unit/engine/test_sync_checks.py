"""Which cases are asked about their synchronization, and what becomes of them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from tests.simulated_yard import open_simulated_yard

from tileyard.base.model import (
    Batch,
    Case,
    Elaborated,
    GoldenKey,
    Kernel,
    KernelWork,
    Outcome,
    Side,
    SourceLine,
)
from tileyard.engine.authors import Authors
from tileyard.engine.ledger import Ledger
from tileyard.engine.sync_checks import LIMIT_S, SyncChecks
from tileyard.sync.findings import Finding
from tileyard.workers.protocol import AnswerT, CheckSync, Failed, Golden, Question, SyncChecked

GOLDEN = Golden(key=GoldenKey("g"), inputs=(), outputs=())
FINE = SyncChecked(kernel="k", config={}, blocks=1, grid=1, findings=(), unchecked=())
RACE = Finding(
    kind="race",
    message="a is raced",
    fix="order it",
    buffer="a",
    access=SourceLine(file="/k.py", line=3),
)
SLOW = Failed(message="the check takes longer than 1 s", outcome=Outcome.TIMEOUT)


@dataclass
class Checker:
    """An author that answers each question about a config."""

    answer: Callable[[CheckSync], SyncChecked | Failed]
    cores: tuple[int, ...] = (0,)
    asked: list[CheckSync] = field(default_factory=list)

    async def begin(self) -> None:
        """Nothing has to be started."""

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """What the check found."""
        assert isinstance(request, CheckSync)
        self.asked.append(request)
        await asyncio.sleep(0)
        reply = self.answer(request)
        return reply if isinstance(reply, Failed) else request.check(reply)

    async def close(self) -> None:
        """Nothing was started."""


def check(
    folder: Path,
    author: Checker,
    *cases: Case,
    wanted: bool | None = None,
    is_asynchronous: bool = True,
) -> tuple[list[str], list[str]]:
    """Prepare cases up to their check, all at once: how each went on, and why some were not checked."""
    with open_simulated_yard(
        folder, (), (0,), authors=Authors([Side()], (0,), lambda side, file: author)
    ) as yard:
        yard.check_sync = wanted
        ledger = Ledger(yard, "run")
        checks = SyncChecks(yard, ledger)

        async def go_on(case: Case) -> str:
            ledger.open(case, Batch(id=case.id, cases=(case,)))
            progress = ledger.progress(case.key)
            progress.elaborated = Elaborated(
                kernel=Kernel(name="k"), is_asynchronous=is_asynchronous
            )
            progress.golden = GOLDEN
            if await checks.passes(progress):
                return "passes"
            (trial,) = ledger.take()
            return f"{trial.outcome}: {trial.message}"

        async def go_on_all() -> list[str]:
            return await asyncio.gather(*map(go_on, cases))

        return asyncio.run(go_on_all()), [*yard.sync_unchecked.values()]


def case_of(number: int, **arguments: int) -> Case:
    """A config of one kernel."""
    work = KernelWork(kernel="k", arguments=dict(arguments), config={"n": number})
    return Case(id=f"c{number}", work=work)


def test_the_first_finding_ends_a_case(tmp_path: Path) -> None:
    """And the report counts the others."""
    found = SyncChecked(
        kernel="k", config={}, blocks=1, grid=1, findings=(RACE, RACE), unchecked=()
    )
    author = Checker(lambda request: found if request.config["n"] == 1 else FINE)
    ended, unchecked = check(tmp_path, author, case_of(1), case_of(2))
    message = "race: /k.py:3: a is raced (and 1 further mistake)"
    assert ended == [f"runtime_error: {message}", "passes"]
    assert unchecked == []


def test_a_config_is_asked_about_once(tmp_path: Path) -> None:
    """However often it runs."""
    author = Checker(lambda _: FINE)
    first = case_of(1)
    again = Case(id="f1", work=first.work)
    assert check(tmp_path, author, first, again)[0] == ["passes"] * 2
    assert [one.limit_s for one in author.asked] == [LIMIT_S]


def test_a_slow_check_is_the_last_of_its_kernel(tmp_path: Path) -> None:
    """With the same arguments; what was not checked is counted, with the reason, and runs."""
    author = Checker(lambda _: SLOW)
    cases = case_of(1, N=4), case_of(2, N=4), case_of(3, N=5)
    again = Case(id="f1", work=cases[0].work)
    assert check(tmp_path, author, *cases, again) == (["passes"] * 4, [f"k: {SLOW.message}"] * 3)
    assert [one.config["n"] for one in author.asked] == [1, 3]
    logs = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.log")]
    assert logs == ["not checked: the check takes longer than 1 s\n"] * 2


def test_what_the_check_does_not_cover_is_counted(tmp_path: Path) -> None:
    """As commits by single threads; the config runs, and the log says why it is not checked."""
    nothing = SyncChecked(kernel="k", config={}, blocks=0, grid=0, findings=(), unchecked=("x",))
    author = Checker(lambda _: nothing)
    assert check(tmp_path, author, case_of(1), case_of(2)) == (["passes"] * 2, ["k: x"] * 2)
    logs = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.log")]
    assert logs == ["not checked: x\n"]


def test_the_first_config_of_any_kernel_is_checked_and_the_finalists(tmp_path: Path) -> None:
    """Of a kernel without asynchronous operations; all further configs once one is wrong."""
    found = SyncChecked(kernel="k", config={}, blocks=1, grid=1, findings=(RACE,), unchecked=())
    right, wrong = (Checker(lambda _, reply=reply: reply) for reply in (FINE, found))
    finalist = msgspec.structs.replace(case_of(3), until="checked")
    cases = case_of(1), case_of(2), finalist, case_of(4, N=5)
    ended, _ = check(tmp_path / "right", right, *cases, is_asynchronous=False)
    assert ended == ["passes", "passes", "passed: ", "passes"]
    assert {one.config["n"] for one in right.asked} == {1, 3, 4}
    assert all(one.is_unasked and one.until_first for one in right.asked)
    check(tmp_path / "wrong", wrong, case_of(1), case_of(2), is_asynchronous=False)
    assert [one.config["n"] for one in wrong.asked] == [1, 2]


def test_a_check_that_is_asked_for_is_of_all_configs(tmp_path: Path) -> None:
    """With the functions that the case names in place of the kernel's own."""
    author = Checker(lambda _: FINE)
    case = case_of(2)
    assert isinstance(case.work, KernelWork)
    work = msgspec.structs.replace(case.work, reference="other", inputs="drawn")
    cases = case_of(1), msgspec.structs.replace(case, work=work)
    check(tmp_path, author, *cases, wanted=True, is_asynchronous=False)
    assert [(one.reference, one.make_inputs) for one in author.asked] == [
        ("", ""),
        ("other", "drawn"),
    ]


def test_a_check_that_was_asked_for_has_no_limit(tmp_path: Path) -> None:
    """And a config that cannot be checked fails."""
    author = Checker(lambda _: Failed(message="it fails"))
    ended, unchecked = check(tmp_path, author, case_of(1), wanted=True)
    assert ended == ["runtime_error: its check: it fails"]
    assert (author.asked[0].limit_s, unchecked) == (0.0, [])


def test_a_comment_that_says_it_wrong_fails_a_case(tmp_path: Path) -> None:
    """Also where nobody asked for the check."""
    author = Checker(lambda _: Failed(message="k.py:3: no reason", usage=True))
    assert check(tmp_path, author, case_of(1))[0] == ["runtime_error: its check: k.py:3: no reason"]


def test_nobody_is_asked_needlessly(tmp_path: Path) -> None:
    """Neither where it is not wanted, nor where nothing runs."""
    author = Checker(lambda _: FINE)
    assert check(tmp_path / "b", author, case_of(1), wanted=False) == (["passes"], [])
    built = Case(id="c", work=KernelWork(kernel="k"), until="built")
    assert check(tmp_path / "c", author, built) == (["passes"], [])
    assert author.asked == []
