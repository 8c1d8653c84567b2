"""What a case is built from: its side's pass options, its target's options."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from tests.simulated_yard import open_simulated_yard

from tileyard.artifacts.manifest import Build
from tileyard.artifacts.objects import build_key
from tileyard.base.model import (
    Batch,
    Case,
    Device,
    Diagnostic,
    Elaborated,
    GoldenKey,
    Kernel,
    KernelWork,
    Outcome,
    Side,
    Value,
)
from tileyard.engine import authors
from tileyard.engine.authors import Authors
from tileyard.engine.compilers import Builder
from tileyard.engine.ledger import Ledger, Progress
from tileyard.engine.preparation import Preparation, place
from tileyard.workers.protocol import (
    AnswerT,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
    Golden,
    MakeGolden,
    Question,
    TargetInfo,
)

KERNEL = Kernel(name="add", tir="abc", pass_options={"tl.one": 1, "tl.two": 2})


@dataclass
class OneKernel:
    """An author of one kernel, or of one that it refuses."""

    refusal: Failed | None = None
    cores: tuple[int, ...] = (0,)
    asked: list[object] = field(default_factory=list)

    async def begin(self) -> None:
        """Nothing has to be started."""

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """The kernel."""
        self.asked.append(request)
        if self.refusal is not None:
            return self.refusal
        return request.check(ElaboratedConfig(elaborated=Elaborated(kernel=KERNEL)))

    async def close(self) -> None:
        """Nothing was started."""


@dataclass
class OneTarget:
    """Stands for compile workers of a target."""

    needs_tir: bool

    async def describe(self, builder: Builder) -> TargetInfo:
        """What the target says of itself."""
        return TargetInfo(fingerprint=f"of {builder.side}{builder.kind}", needs_tir=self.needs_tir)


def prepare(
    folder: Path,
    author: OneKernel,
    *,
    side: str = "",
    needs_tir: bool = True,
    config: dict[str, Value] | None = None,
    **pass_options: Value,
) -> Progress | Build:
    """Prepare a case that is only built; what is known of it then, or how its build ended."""
    sides = [Side(), Side(name="head", pass_options=pass_options)]
    work = KernelWork(kernel="add", config=config or {})
    case = Case(id="c", work=work, side=side, until="built", options={"o": 1})
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
        built = yard.builds[trial.key]
        assert (built.outcome, built.message) == (trial.outcome, trial.message)
        return built


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
    built = prepare(tmp_path, author, side="head", needs_tir=False, **{"tl.new": 1})
    assert isinstance(built, Build)
    assert (built.outcome, author.asked) == (Outcome.COMPILE_ERROR, [])


def test_a_config_with_a_pipeline_is_elaborated_for_its_target(tmp_path: Path) -> None:
    """The author needs the target to choose passes; without a pipeline all targets share one answer."""
    author = OneKernel()
    for config in ({"pipeline": "tileyard"}, {"tile": 64}):
        prepare(tmp_path, author, config=config)
    asked = [request for request in author.asked if isinstance(request, ElaborateConfig)]
    assert [(request.config, request.target) for request in asked] == [
        ({"pipeline": "tileyard"}, "cpu"),
        ({"tile": 64}, ""),
    ]


def test_a_config_is_elaborated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each side and file, also without stored answers; of many configs the first ones are forgotten."""
    monkeypatch.setattr(authors, "MOST_KEPT", 2)
    author = OneKernel()
    ours = Authors([Side(), Side(name="head")], (0,), lambda side, file: author)

    def ask(tile: int, side: str = "") -> None:
        request = ElaborateConfig(kernel="add", arguments={}, config={"tile": tile})
        asyncio.run(ours.elaborate(side, "k.py", request, 1.0))

    for tile in (1, 2, 1, 2):
        ask(tile)
    assert len(author.asked) == 2
    ask(2, side="head")
    ask(2)
    assert len(author.asked) == 3
    ask(1)
    assert len(author.asked) == 4
    author.refusal = Failed(message="no", outcome=Outcome.INFRA_ERROR)
    ask(3)
    ask(3)
    assert len(author.asked) == 6


def test_what_an_author_refuses_is_in_the_record_of_its_build(tmp_path: Path) -> None:
    """Outcome, message and what is known in parts, as if a target had refused it."""
    reason = Diagnostic(message="no such copy", operation="copy")
    refusal = Failed(message="no such copy", outcome=Outcome.COMPILE_ERROR, diagnostic=reason)
    built = prepare(tmp_path, OneKernel(refusal))
    assert isinstance(built, Build)
    expected = Build(
        case="c", outcome=Outcome.COMPILE_ERROR, message="no such copy", diagnostic=reason
    )
    assert built == expected


@dataclass
class SlowReferences(OneKernel):
    """An author whose golden results take a few turns of the loop."""

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """The kernel, or its golden result after a while."""
        if not isinstance(request, MakeGolden):
            return await super().ask(request, limit_s)
        self.asked.append(request)
        for _ in range(3):
            await asyncio.sleep(0)
        return request.check(Golden(key=GoldenKey("g"), inputs=(), outputs=()))


def test_cases_that_are_prepared_side_by_side_share_a_golden_result(tmp_path: Path) -> None:
    """It is asked for once, and those still to come are counted on to share it as well."""
    author, counts = SlowReferences(), []

    def make_case(size: int, block: int) -> Case:
        work = KernelWork(kernel="add", file="k.py", arguments={"N": size}, config={"b": block})
        return Case(id=f"{size}/{block}", work=work)

    async def work(preparation: Preparation, ledger: Ledger, *cases: Case) -> None:
        kept = [preparation.prepare(ledger.progress(case.key)) for case in cases]
        await asyncio.gather(*kept)
        counts.append(ledger_yard.authors.lanes.count_left("", "k.py"))

    cases = [make_case(size, block) for size in (1, 2) for block in range(4)]
    ours = Authors([Side()], (0,), lambda side, file: author)
    with open_simulated_yard(tmp_path, (), (0,), authors=ours) as ledger_yard:
        ledger = Ledger(ledger_yard, "run")
        for case in cases:
            ledger.open(case, Batch(id="b", cases=tuple(cases)))
        preparation = Preparation(ledger_yard, ledger, cast(Any, OneTarget(needs_tir=True)))
        asyncio.run(work(preparation, ledger, *cases[:2], cases[4]))
    made = [asked for asked in author.asked if isinstance(asked, MakeGolden)]
    assert [asked.arguments for asked in made] == [{"N": 1}, {"N": 2}]
    # Two of three cases needed one of their own, and five are still to come.
    assert counts == [5 * 2 // 3]


def test_a_case_is_built_for_its_kind_of_cpu_and_proven_by_any(tmp_path: Path) -> None:
    """The key of its build is that kind's. A pass on another kind of the run counts; other kinds' do not."""
    work = KernelWork(kernel="add")
    case = Case(id="t/c", work=work, suite="s", testcase="t", timing=None)
    ours = Authors([Side()], (0,), lambda side, file: SlowReferences())
    cpus = tuple(
        Device(name=f"cpu:0@{name}", kind="cpu", identity=f"{name}, x86-64-v3, 8 logical cores")
        for name in ("old", "new", "older")
    )
    ends: list[tuple[str, Outcome]] = []
    with open_simulated_yard(
        tmp_path, (), (0,), authors=ours, reuse=False, proven_by="any"
    ) as yard:
        for run, names in (
            ("r1", ("old", "new")),
            ("r2", ("new", "older")),
            ("r3", ("old", "new")),
        ):
            yard.grounds = {"cpu": tuple(one for one in cpus if one.name.endswith(names))}
            ledger = Ledger(yard, run)
            ledger.open(case, Batch(id="c", cases=(case,)))
            progress = ledger.progress(case.key)
            assert [*yard.find_kinds("cpu")] == [f"{name}, x86-64-v3" for name in names]
            assert not yard.find_kinds("command")
            place(progress, f"{names[0]}, x86-64-v3")
            preparation = Preparation(yard, ledger, cast(Any, OneTarget(needs_tir=True)))
            if asyncio.run(preparation.prepare(progress)):
                fingerprint = f"of {names[0]}, x86-64-v3"
                assert progress.keys.build == build_key(KERNEL, "cpu", fingerprint, {})
                ledger.finish(progress, Outcome.PASSED if run != "r1" else Outcome.MISMATCH, "")
            ends += [(run, trial.outcome) for trial in ledger.take()]
    assert ends == [
        ("r1", Outcome.MISMATCH),
        ("r2", Outcome.PASSED),
        ("r3", Outcome.SKIPPED),
    ]
