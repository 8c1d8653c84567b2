"""What a case is built from: its side's pass options, its target's options."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tileyard.artifacts.keys import build_key
from tileyard.engine.authors import Authors
from tileyard.engine.ledger import Ledger, Progress
from tileyard.engine.preparation import Preparation
from tileyard.model import Batch, Case, Elaborated, Kernel, KernelWork, Outcome, Side, Value
from tileyard.testing.engine import open_simulated_yard
from tileyard.workers.protocol import AnswerT, ElaboratedConfig, Failed, Question, TargetInfo

KERNEL = Kernel(name="add", tir="abc", pass_options={"tl.one": 1, "tl.two": 2})


@dataclass
class OneKernel:
    """An author of one kernel."""

    cores: tuple[int, ...] = (0,)
    asked: list[object] = field(default_factory=list)

    async def begin(self) -> None:
        """Nothing has to be started."""

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """The kernel."""
        self.asked.append(request)
        return request.check(ElaboratedConfig(elaborated=Elaborated(kernel=KERNEL)))

    async def close(self) -> None:
        """Nothing was started."""


@dataclass
class OneTarget:
    """Stands for compile workers of a target."""

    needs_tir: bool

    async def describe(self, builder: tuple[str, str]) -> TargetInfo:
        """What the target says of itself."""
        return TargetInfo(fingerprint=f"of {builder[0]}", needs_tir=self.needs_tir)


def prepare(
    folder: Path,
    author: OneKernel,
    *,
    side: str = "",
    needs_tir: bool = True,
    **pass_options: Value,
) -> Progress | Outcome:
    """Prepare a case that is only built; what is known of it then, or how it ended."""
    sides = [Side(), Side(name="head", pass_options=pass_options)]
    case = Case(id="c", work=KernelWork(kernel="add"), side=side, until="built", options={"o": 1})
    with open_simulated_yard(
        folder, (), (0,), authors=Authors(sides, (0,), lambda side, file: author)
    ) as yard:
        ledger = Ledger(yard, "run")
        ledger.open(case, Batch(id="c", cases=(case,)))
        progress = ledger.progress(case.key)
        preparation = Preparation(yard, ledger, cast(Any, OneTarget(needs_tir)))
        if asyncio.run(preparation.prepare(progress)):
            return progress
        (trial,) = ledger.take()
        return trial.outcome


def test_a_sides_pass_options_take_the_place_of_the_kernels_own(tmp_path: Path) -> None:
    """Options of a side win over a kernel's own of the same names, the others stay, and the key has them."""
    options = {"tl.two": 3, "tl.new": True}
    progress = prepare(tmp_path, OneKernel(), side="head", **options)
    assert isinstance(progress, Progress)
    assert progress.elaborated is not None
    kernel = progress.elaborated.kernel
    assert kernel.pass_options == {"tl.one": 1, **options}
    assert progress.keys.build == build_key(kernel, "cpu", "of head", {"o": 1})


def test_another_side_has_none_of_them(tmp_path: Path) -> None:
    """Without options an author's answers are taken as they are, whatever the target takes."""
    progress = prepare(tmp_path, OneKernel(), needs_tir=False, **{"tl.new": 1})
    assert isinstance(progress, Progress)
    assert progress.elaborated is not None
    assert progress.elaborated.kernel == KERNEL
    assert progress.keys.build == build_key(KERNEL, "cpu", "of ", {"o": 1})


def test_a_target_without_passes_refuses_options(tmp_path: Path) -> None:
    """Where the target reads no TIR, each config is refused before anybody is asked."""
    author = OneKernel()
    outcome = prepare(tmp_path, author, side="head", needs_tir=False, **{"tl.new": 1})
    assert (outcome, author.asked) == (Outcome.COMPILE_ERROR, [])
