"""Pairs of builds: what is built, what is timed, when that ends, and which row comes of it."""

import asyncio
import math
import random
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pytest

from tileyard.artifacts.manifest import Build
from tileyard.base.model import (
    Batch,
    BuildKey,
    Case,
    CommandWork,
    KernelWork,
    Keys,
    Measure,
    Measurement,
    Outcome,
    RunKey,
    Step,
    Trial,
)
from tileyard.measure.looks import LOOKS
from tileyard.targets.registry import list_shifted
from tileyard.verbs.regress.plan.pairs import (
    PROGRAM_ROUNDS,
    ROUNDS,
    SLOTS,
    Pairs,
    compare_rounds,
    find_controls,
    fold_pairs,
)
from tileyard.verbs.regress.result import CaseMargin, Gate, TimedRow

MARGIN = 0.02
GATE = Gate(margin=MARGIN)
SHIFTS = list_shifted("cpu")
Samples = Callable[[str, str], Sequence[float]]
"""Times of a kernel's member: ``base``, ``head`` or ``control``."""


def cases(*names: str) -> list[Case]:
    """Cases of kernels of these names."""
    return [Case(id=name, work=KernelWork(kernel=name)) for name in names]


class Machine:
    """Plays the engine: builds and times as it is told. ``builds`` are binaries by kernel and side. After
    ``most`` batches the time is over, and nothing more is run.
    """

    def __init__(
        self,
        samples: Samples,
        builds: Mapping[str, tuple[str, str]] | None = None,
        most: float = math.inf,
        numbers: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        self._numbers = numbers or {}
        self._samples = samples
        self._builds = builds or {}
        self.outcomes: dict[str, Outcome] = {}
        self.elsewhere: dict[str, float] = {}
        """How many times as long heads take with their code at other places."""
        self.wrong_elsewhere = False
        self.hot = 0
        """The device is too hot in so many batches."""
        self.timed: list[Batch] = []
        self._left = most

    @property
    def is_over(self) -> bool:
        """The time is."""
        return self._left <= 0

    @property
    def device(self) -> str:
        """Batches are timed on two devices in turn."""
        return f"cpu:{len(self.timed) % 2}"

    def run(self, source: Pairs) -> None:
        """Until the source has nothing more to ask."""
        while not source.done():
            batches = asyncio.run(source.ask(4))
            assert batches
            for batch in batches:
                if batch.order == "interleaved":
                    self.timed.append(batch)
                self._left -= 1
                for case in batch.cases:
                    source.tell(self._end(case, batch))

    def _end(self, case: Case, batch: Batch) -> Trial:
        kernel, *rest = case.id.split("/")
        slot = next(part for part in rest if part in SLOTS)
        outcome = self.outcomes.get(f"{kernel}/{slot}", Outcome.PASSED)
        if self.wrong_elsewhere and case.target != "cpu" and slot == "head":
            outcome = Outcome.MISMATCH
        if case.until != "judged" and outcome is not Outcome.COMPILE_ERROR:
            outcome = Outcome.PASSED
        if self._left < 0:
            outcome = Outcome.NOT_RUN
        trial = Trial(
            id=case.id,
            run="r",
            case=case.id,
            batch=batch.id,
            target="cpu",
            device=self.device,
            outcome=outcome,
            message="as told",
            run_s=1.0,
        )
        if case.until != "judged":
            binary = self._builds.get(kernel, ("one", "other"))[slot == "head"]
            keys = Keys(build=BuildKey(f"{kernel} {slot}"), binary=binary, run=RunKey(""))
            return msgspec.structs.replace(
                trial, keys=keys, outcome=Outcome.SKIPPED if outcome is Outcome.PASSED else outcome
            )
        if outcome is not Outcome.PASSED:
            return trial
        times = tuple(self._samples(kernel, slot))
        if slot == "head":
            times = tuple(one * self.elsewhere.get(case.target, 1.0) for one in times)
        measurement = Measurement(
            median_ns=times[0],
            low_ns=0.0,
            high_ns=0.0,
            confidence=0.95,
            samples_ns=times,
            printed=tuple(self._numbers.get(slot, ())),
            device_state={"disturbed": "too hot"} if len(self.timed) <= self.hot else {},
        )
        return msgspec.structs.replace(trial, measurement=measurement)


def noisy(ratios: Mapping[str, float], noise: float = 0.003) -> Samples:
    """Times of about 1000 ns; a head's are so many times as long. Processes differ by the noise, too."""
    draw = random.Random(3)

    def sample(kernel: str, slot: str) -> Sequence[float]:
        typical = 1000.0 * (ratios[kernel] if slot == "head" else 1.0) * draw.gauss(1.0, noise)
        return [typical * draw.gauss(1.0, noise) for _ in range(ROUNDS)]

    return sample


def make_source(
    base: list[Case], head: list[Case], case_s: float = 1000.0, gate: Gate = GATE
) -> Pairs:
    """A source of these pairs."""
    return Pairs({"base": base, "head": head}, gate, case_s, SHIFTS)


def rows_of(source: Pairs, **refused: Sequence[Build]) -> dict[str, TimedRow]:
    """The rows by their kernels, in order."""
    rows, _, _ = fold_pairs(source, refused, GATE)
    return {row.case: row for row in rows}


def test_each_change_has_its_verdict() -> None:
    """Slower, faster, and neither; the worst comes first, and each took as few processes as it needs."""
    kernels = cases("slow", "fast", "even")
    source = make_source(kernels, kernels)
    machine = Machine(noisy({"slow": 1.1, "fast": 0.8, "even": 1.0}))
    machine.run(source)
    rows = rows_of(source)
    assert [(name, row.verdict) for name, row in rows.items()] == [
        ("slow", "regressed"),
        ("fast", "improved"),
        ("even", "equivalent"),
    ]
    ratio = rows["slow"].ratio
    assert ratio is not None
    assert ratio.low is not None
    assert 1.05 < ratio.low < ratio.ratio < 1.15
    assert ratio.processes < LOOKS[-1]
    assert rows["slow"].base == pytest.approx(1000, rel=0.02)
    assert rows["slow"].head == pytest.approx(1100, rel=0.02)


def test_a_device_on_which_base_differs_from_itself_raises_an_alarm() -> None:
    """The others do not: each has a control of its own over all rows."""
    kernels = cases("one", "two")
    source = make_source(kernels, kernels)
    usual = noisy({"one": 1.0, "two": 1.0})

    def sample(kernel: str, slot: str) -> Sequence[float]:
        is_off = slot == "control" and machine.device == "cpu:1"
        return [one * (1.05 if is_off else 1.0) for one in usual(kernel, slot)]

    machine = Machine(sample)
    machine.run(source)
    controls = find_controls(source, MARGIN)
    assert [(one.device, one.is_alarm) for one in controls] == [("cpu:0", False), ("cpu:1", True)]
    assert sum(one.ratio.processes for one in controls) == len(machine.timed)
    assert controls[1].ratio.ratio == pytest.approx(1.05, rel=0.01)


def test_a_pair_is_timed_in_fresh_processes_with_its_control() -> None:
    """Base, head and base again, in turn."""
    kernels = cases("slow")
    source = make_source(kernels, kernels)
    machine = Machine(noisy({"slow": 2.0}))
    machine.run(source)
    own = [batch for batch in machine.timed if batch.cases[0].target == "cpu"]
    for number, batch in enumerate(own, start=1):
        assert (batch.order, batch.process, batch.rounds) == ("interleaved", "fresh", ROUNDS)
        assert [case.id for case in batch.cases] == [
            f"slow/{number}/{slot}" for slot in ("base", "head", "control")
        ]
        assert [case.control for case in batch.cases] == [False, False, True]
    assert number == LOOKS[0]


def test_a_change_is_confirmed_with_its_code_elsewhere() -> None:
    """One process for each place, timed as those before; what did not change is not timed there."""
    kernels = cases("slow", "even")
    source = make_source(kernels, kernels)
    machine = Machine(noisy({"slow": 1.1, "even": 1.0}))
    machine.run(source)
    elsewhere = [batch for batch in machine.timed if batch.cases[0].target != "cpu"]
    assert sorted({case.target for batch in elsewhere for case in batch.cases}) == list(SHIFTS)
    assert {case.id.partition("/")[0] for batch in elsewhere for case in batch.cases} == {"slow"}
    assert len({batch.id for batch in machine.timed}) == len(machine.timed)
    row = rows_of(source)["slow"]
    assert (row.verdict, row.message) == ("regressed", "")
    assert row.shifted == pytest.approx([1.1] * len(SHIFTS), rel=0.02)
    assert row.ratio is not None
    assert row.ratio.processes == LOOKS[0]


@pytest.mark.parametrize(
    ("places", "verdict"), [(1, "regressed"), (2, "inconclusive"), (3, "inconclusive")]
)
def test_an_accident_of_the_layout_is_no_change(places: int, verdict: str) -> None:
    """The middle of all layouts is to be beyond the margin, too."""
    kernels = cases("k")
    source = make_source(kernels, kernels)
    machine = Machine(noisy({"k": 1.03}, noise=0.001))
    machine.elsewhere = dict.fromkeys(SHIFTS[:places], 1 / 1.03)
    machine.run(source)
    row = rows_of(source)["k"]
    assert row.verdict == verdict
    assert ("other places in memory" in row.message) == (verdict == "inconclusive")


@pytest.mark.parametrize(("batches", "confirmed"), [(6, 0), (13, 1)])
def test_a_change_that_is_not_confirmed_says_so(batches: int, confirmed: int) -> None:
    """Two builds and four processes come first, then six builds."""
    kernels = cases("k")
    machine = Machine(noisy({"k": 1.1}), most=batches)
    source = Pairs(
        {"base": kernels, "head": kernels}, GATE, 1000.0, SHIFTS, lambda: machine.is_over
    )
    machine.run(source)
    row = rows_of(source)["k"]
    assert (row.verdict, len(row.shifted)) == ("regressed", confirmed)
    assert row.message == f"confirmed at {confirmed} of 3 other places in memory"


def test_a_wrong_result_in_another_layout_counts() -> None:
    """The code is the same, so it is wrong."""
    kernels = cases("k")
    source = make_source(kernels, kernels)
    machine = Machine(noisy({"k": 1.1}))
    machine.wrong_elsewhere = True
    machine.run(source)
    row = rows_of(source)["k"]
    assert (row.verdict, row.head_message) == ("failed", "mismatch: as told")


def test_the_best_runs_of_programs_are_compared() -> None:
    """Of those that print a number, that counts; each run is a process, so no further one is asked for."""
    rate = Measure(of="printed", pattern="(.*)", unit="GB/s", better="higher")
    step = Step(argv=("true",))
    programs = [Case(id="rate", work=CommandWork(run=step, measure=rate))]
    source = make_source(programs, programs)
    numbers = {"base": (90.0, 100.0), "control": (100.0, 70.0), "head": (80.0, 90.0)}
    machine = Machine(lambda kernel, slot: (1e6, 1e6), numbers=numbers)
    machine.run(source)
    row = rows_of(source)["rate"]
    assert (row.verdict, row.base, row.head, row.unit) == ("regressed", 100.0, 90.0, "GB/s")
    assert row.ratio is not None
    assert (row.ratio.ratio, row.ratio.processes) == (pytest.approx(0.9), LOOKS[0])
    assert row.worse == pytest.approx(1 / 0.9)
    assert {(batch.process, batch.rounds) for batch in machine.timed} == {("warm", PROGRAM_ROUNDS)}


def test_a_best_run_that_no_other_confirms_does_not_count() -> None:
    """Others were at work in its batch, and there comes another one."""
    programs = [Case(id="p", work=CommandWork(run=Step(argv=("true",))))]
    source = make_source(programs, programs, case_s=5.0)
    times = {"base": (1e6, 1.04e6), "control": (1e6, 1.04e6), "head": (0.6e6, 1.2e6, 1.2e6)}
    Machine(lambda _, slot: times[slot]).run(source)
    row = rows_of(source)["p"]
    assert (row.verdict, row.ratio, row.disturbed) == ("inconclusive", None, 5)


def test_a_process_on_a_device_that_is_not_well_does_not_count() -> None:
    """There comes another one for it."""
    kernels = cases("slow")
    source = make_source(kernels, kernels)
    machine = Machine(noisy({"slow": 2.0}))
    machine.hot = 2
    machine.run(source)
    row = rows_of(source)["slow"]
    assert (row.verdict, row.disturbed) == ("regressed", 2)


def test_different_measures_are_not_compared() -> None:
    """Nothing is run for them; where both sides use the same it does not matter."""
    units = [Measure(of="printed", pattern="(.*)", unit=unit) for unit in ("s", "ms")]
    step = Step(argv=("true",))
    base, head = (
        [Case(id=name, work=CommandWork(run=step, measure=unit)) for name in ("other", "same")]
        for unit in units
    )
    source = make_source(base, head)
    machine = Machine(lambda kernel, slot: (1.0,), {"same": ("b", "b")})
    machine.run(source)
    rows = rows_of(source)
    assert (rows["other"].verdict, rows["same"].verdict) == ("failed", "unchanged")
    expected = "base in s (lower is better) and head in ms (lower is better)"
    assert expected in rows["other"].message
    assert machine.timed == []


def test_equal_binaries_are_not_run() -> None:
    """Whatever they were built from."""
    kernels = cases("same", "slow")
    source = make_source(kernels, kernels)
    machine = Machine(noisy({"same": 1.0, "slow": 2.0}), {"same": ("b", "b")})
    machine.run(source)
    assert {
        case.work.kernel  # type: ignore[union-attr]
        for batch in machine.timed
        for case in batch.cases
    } == {"slow"}
    assert rows_of(source)["same"] == TimedRow(case="same", verdict="unchanged")


def test_no_row_vanishes() -> None:
    """One that a side lacks, cannot plan, cannot build or gets wrong is a row."""
    source = make_source(cases("gone", "broken", "wrong"), cases("broken", "wrong", "young"))
    machine = Machine(noisy({"wrong": 1.0}))
    machine.outcomes = {
        "broken/head": Outcome.COMPILE_ERROR,
        "wrong/head": Outcome.MISMATCH,
    }
    machine.run(source)
    refusal = Build(case="unread", outcome=Outcome.COMPILE_ERROR, message="no such module")
    rows = rows_of(source, head=[refusal])
    verdicts = {name: row.verdict for name, row in rows.items()}
    assert verdicts == {
        "broken": "failed",
        "wrong": "failed",
        "unread": "failed",
        "gone": "missing",
        "young": "new",
    }
    assert rows["broken"].head_message == "compile_error: as told"
    assert rows["wrong"].head_message == "mismatch: as told"
    assert rows["unread"].head_message == "no such module"
    assert len(machine.timed) == 1


def test_what_infrastructure_fails_is_not_the_kernels_failure() -> None:
    """It was not run, which says nothing of it."""
    kernels = cases("k")
    source = make_source(kernels, kernels)
    machine = Machine(noisy({"k": 1.0}))
    machine.outcomes = {"k/control": Outcome.INFRA_ERROR}
    machine.run(source)
    assert rows_of(source)["k"].verdict == "not_run"


def test_a_pair_that_noise_hides_ends_undecided_in_time() -> None:
    """Its interval says why."""
    kernels = cases("k")
    source = make_source(kernels, kernels, case_s=10.0)
    machine = Machine(noisy({"k": 1.02}, noise=0.02))
    machine.run(source)
    row = rows_of(source)["k"]
    assert row.verdict == "inconclusive"
    assert len(machine.timed) == 10
    assert row.smallest is not None
    assert row.smallest > MARGIN


def test_what_gates_is_measured_until_it_is_known() -> None:
    """A kernel that is slower is timed until its interval leaves the limit; one that is faster is not."""
    kernels = cases("slow", "fast")
    samples = {"slow": 1.08, "fast": 1 / 1.08}
    narrow = make_source(kernels, kernels)
    Machine(noisy(samples, noise=0.01)).run(narrow)
    gate = Gate(margin=MARGIN, fail_over=0.06)
    wide = make_source(kernels, kernels, gate=gate)
    Machine(noisy(samples, noise=0.01)).run(wide)
    low = {name: row.ratio.low for name, row in rows_of(wide).items() if row.ratio}
    assert low["slow"] is not None
    assert low["slow"] > 1.06
    assert wide.pairs[0].asked > narrow.pairs[0].asked
    assert wide.pairs[1].asked == narrow.pairs[1].asked


def test_a_kernel_has_its_own_margin() -> None:
    """A change within it is none, and neither is it in the intervals that all rows share."""
    kernels = cases("slow", "loose")
    gate = Gate(margin=MARGIN, margins=(CaseMargin(cases="loo*", percent=20),))
    source = make_source(kernels, kernels, gate=gate)
    Machine(noisy({"slow": 1.1, "loose": 1.1})).run(source)
    rows, _, _ = fold_pairs(source, {}, gate)
    assert [(row.case, row.verdict) for row in rows] == [
        ("slow", "regressed"),
        ("loose", "equivalent"),
    ]


def test_what_is_left_follows_from_what_was_needed() -> None:
    """A pair that is undecided is expected to take as many processes as those that are decided did."""
    kernels = cases("slow", "fast", "even")
    left = []
    source = make_source(kernels, kernels)
    source.watch = lambda pair: left.append((pair.is_decided, source.count_left()))
    Machine(noisy({"slow": 1.1, "fast": 0.8, "even": 1.0}, noise=0.01)).run(source)
    assert left[0] == (False, 3 * LOOKS[0] - 1)
    first = next(number for number, (is_decided, _) in enumerate(left) if is_decided)
    assert left[first][1] <= left[first - 1][1] + len(SHIFTS)
    assert left[-1] == (True, 0)


@pytest.mark.parametrize("batches", [1, 3, 5, 6])
def test_what_no_time_was_left_for_is_undecided(batches: int) -> None:
    """It failed nothing, whether it was to be built or to be timed: four builds come first."""
    kernels = cases("k", "late")
    machine = Machine(noisy({"k": 1.0, "late": 1.0}), most=batches)
    source = Pairs({"base": kernels, "head": kernels}, GATE, 1000.0, (), lambda: machine.is_over)
    machine.run(source)
    assert {row.verdict for row in rows_of(source).values()} == {"inconclusive"}


def test_of_many_equal_pairs_none_is_called_changed() -> None:
    """Nor is any base called different from itself."""
    names = [f"k{number}" for number in range(40)]
    kernels = cases(*names)
    source = make_source(kernels, kernels)
    Machine(noisy(dict.fromkeys(names, 1.0), noise=0.01)).run(source)
    rows, alarms, mean = fold_pairs(source, {}, GATE)
    assert {row.verdict for row in rows} <= {"equivalent", "inconclusive"}
    assert alarms == ()
    assert mean is not None
    assert (mean.rows, mean.ratio) == (40, pytest.approx(1.0, abs=0.01))


def test_rounds_that_others_disturb_do_not_count() -> None:
    """The ratio is that of the calm rounds; with too few of these there is none."""
    base = [100.0] * 100
    head = [110.0] * 100
    for number in range(0, 100, 2):
        base[number] *= 3
        head[(number + 4) % 100] *= 7
    found = compare_rounds({"base": base, "head": head, "control": base})
    assert found is not None
    assert found["head"] == pytest.approx(0.0953, abs=1e-4)
    assert found["control"] == 0.0
    crowded = [100.0 * (1 + number % 10) for number in range(100)]
    rotated = crowded[5:] + crowded[:5]
    assert compare_rounds({"base": crowded, "head": rotated, "control": base}) is None
