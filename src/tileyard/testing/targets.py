"""The contract of targets: one that runs Programs must give the interpreter's results. Test classes
inherit ``TargetContract`` and define the fixtures ``target`` and ``device``.
"""

import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tileyard.base.errors import BindError, KernelFault
from tileyard.base.model import Device
from tileyard.ir.dtypes import poison
from tileyard.ir.interpret import interpret
from tileyard.ir.nodes import Program
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.ir.specs import tensor_specs
from tileyard.targets.base import Array, RunsAgain, Target
from tileyard.testing.programs import programs
from tileyard.testing.target_cases import (
    GEMMS,
    MEMORY,
    OPERATIONS,
    REDUCTIONS,
    SCALARS,
    TargetCase,
    explain_difference,
    load_program,
    make_source,
    random_arguments,
)
from tileyard.testing.tile_cases import TILES

CASES: Mapping[str, TargetCase] = {
    **GEMMS,
    **REDUCTIONS,
    **TILES,
    **MEMORY,
    **SCALARS,
    **OPERATIONS,
}
"""All cases of the contract, named after what they show."""

COPY = """
def copy_(X: float32[m, 8], Y: out.float32[m, 8], Z: inout.int32[4]):
    m: dim
    for i, j in parallel(m, 8):
        Y[i, j] = X[i, j]
    for k in parallel(2):
        Z[k] = Z[k] + 1
"""

HALF_WRITTEN = """
def half(Y: out.float32[4], Z: out.int16[4]):
    for i in parallel(2):
        Y[i] = 1.0
        Z[i] = 2
"""

FAULTS = {
    "deadlock: nothing ends the wait for the other; deadlock: nothing ends the wait for the one": """
def fault(X: int32[4], Y: out.int32[4]):
    said: shared.int32[2]
    fill(said, 0)
    with roles:
        with role:
            Y[0] = X[0]
            wait(said[1] > 0, "for the other")
            said[0] = 1
        with role:
            for i in serial(2):
                wait(said[0] > i, "for the one")
                said[1] = 1
""",
    "divided by zero": """
def fault(X: int32[4], Y: out.int32[4]):
    for i in serial(4):
        Y[i] = 7 // X[i]
""",
    "outside its shape": """
def fault(X: int32[4], Y: out.int32[4]):
    t: local.int32[2]
    for i in serial(4):
        t[i] = X[i]
        Y[i] = t[i]
""",
    "shifted": """
def fault(X: int32[4], Y: out.int32[4]):
    for i in serial(4):
        Y[i] = 1 << (X[i] + 33)
""",
    "X is not positive": """
def fault(X: int32[4], Y: out.int32[4]):
    for i in serial(4):
        assert X[i] > 0, "X is not positive"
        Y[i] = X[i]
""",
}


class TargetContract:
    """Tests of what every target that runs Programs promises."""

    @pytest.fixture
    def target(self) -> Target:
        """The target under test."""
        raise NotImplementedError

    @pytest.fixture
    def device(self) -> Device:
        """A device that it runs on."""
        raise NotImplementedError

    @pytest.mark.slow
    @pytest.mark.parametrize("name", CASES)
    def test_gives_what_the_interpreter_gives(
        self, name: str, target: Target, device: Device, tmp_path: Path
    ) -> None:
        """Outputs equal the interpreter's, within what the case allows for the order of sums."""
        case = CASES[name]
        program = case.program
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy warns when it converts NaN or overflows
            expected = interpret(program, case.arrays(), case.scalars)
        launch = load_program(target, device, program, tmp_path).bind(case.arrays(), case.scalars)
        launch.run()
        names = [spec.name for spec in tensor_specs(program, case.dims) if spec.role != "in"]
        wrong = [
            f"{name}: {difference}"
            for name, got, want in zip(names, launch.read(), expected, strict=True)
            if (difference := explain_difference(got, want, case))
        ]
        assert not wrong, "\n".join(wrong)

    @pytest.mark.slow
    def test_runs_generated_programs_as_the_interpreter_does(
        self, target: Target, device: Device, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        """Small random Programs with all statements and expressions give the interpreter's arrays."""

        @settings(
            max_examples=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(programs(max_blocks=1, is_exact=True), st.integers(0, 2**32 - 1))
        def check(program: Program, seed: int) -> None:
            arrays, scalars = random_arguments(program, seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = interpret(program, arrays, scalars)
            folder = tmp_path_factory.mktemp("generated")
            launch = load_program(target, device, program, folder).bind(arrays, scalars)
            launch.run()
            case = TargetCase(text="", dims={}, ulps=1)
            for got, want in zip(launch.read(), expected, strict=True):
                assert explain_difference(got, want, case) == "", print_program(program)

        check()

    @pytest.mark.slow
    def test_poisons_what_is_never_written(
        self, target: Target, device: Device, tmp_path: Path
    ) -> None:
        """Elements of outputs that the kernel does not write hold their type's poison."""
        launch = load_program(target, device, read_program(HALF_WRITTEN), tmp_path).bind([], [])
        launch.run()
        floats, integers = launch.read()
        expected = (1.0, 2, poison("int16"))
        assert (floats[1], integers[1], integers[3]) == expected
        assert np.isnan(floats[2:]).all()

    @pytest.mark.slow
    def test_a_further_run_shows_what_is_never_written(
        self, target: Target, device: Device, tmp_path: Path
    ) -> None:
        """With other content in the outputs, elements that are not written differ, and no others;
        inverted, floats have the other sign.
        """
        launch = load_program(target, device, read_program(HALF_WRITTEN), tmp_path).bind([], [])
        if not isinstance(launch, RunsAgain):
            pytest.skip("its launches cannot be run again")
        seen = []
        for again in (
            launch.run,
            partial(launch.run_again, inverted=False),
            partial(launch.run_again, inverted=True),
        ):
            again()
            seen.append([array.copy() for array in launch.read()])
        (first, integers), (second, others), (third, _) = seen
        assert (first[:2] == second[:2]).all()
        assert not (second.astype(float) + third.astype(float))[2:].any()
        assert np.isfinite(second).all()
        assert (integers == others).tolist() == [True, True, False, False]

    @pytest.mark.slow
    def test_reset_gives_arguments_their_first_content(
        self, target: Target, device: Device, tmp_path: Path
    ) -> None:
        """After two launches and a reset, a launch gives the first launch's result; inputs are kept."""
        x, z = np.ones((3, 8), np.float32), np.arange(4, dtype=np.int32)
        launch = load_program(target, device, read_program(COPY), tmp_path).bind([x, z], [])
        launch.run()
        launch.run()
        twice = launch.read()[1].copy()
        launch.reset()
        assert np.isnan(launch.read()[0]).all()
        launch.run()
        expected = ([2, 3, 2, 3], [1, 2, 2, 3], [0, 1, 2, 3])
        assert (twice.tolist(), launch.read()[1].tolist(), z.tolist()) == expected

    @pytest.mark.slow
    def test_every_launch_reads_its_inputs_anew(
        self, target: Target, device: Device, tmp_path: Path
    ) -> None:
        """A launch does not use what an earlier launch has kept of its inputs."""
        case = TILES["ragged gemm over a grid, constant sizes"]
        first, second = case.arrays(), [2 * array for array in case.arrays()]
        launch = load_program(target, device, case.program, tmp_path).bind(first, [])
        launch.run()
        for array, other in zip(first, second, strict=True):
            array[...] = other
        launch.run()
        expected = interpret(case.program, second, [])
        assert explain_difference(launch.read()[0], expected[0], case) == ""

    @pytest.mark.slow
    def test_times_launches(self, target: Target, device: Device, tmp_path: Path) -> None:
        """Each sample is one positive time, in nanoseconds per launch."""
        x, z = np.ones((3, 8), np.float32), np.zeros(4, np.int32)
        launch = load_program(target, device, read_program(COPY), tmp_path).bind([x, z], [])
        expected = 5
        samples = launch.sample_ns(expected, 3)
        assert len(samples) == expected
        assert all(time > 0 for time in samples)
        assert launch.read()[1][0] == 15

    @pytest.mark.slow
    def test_says_which_argument_does_not_fit(
        self, target: Target, device: Device, tmp_path: Path
    ) -> None:
        """A wrong type, shape, rank or number of arrays is a BindError that names the parameter."""
        loaded = load_program(target, device, read_program(COPY), tmp_path)
        z = np.zeros(4, np.int32)
        wrong: list[tuple[list[Array], str]] = [
            ([np.ones((3, 8)), z], "X is float32"),
            ([np.ones((3, 9), np.float32), z], "X has shape"),
            ([np.ones(8, np.float32), z], "X has 2 dimensions"),
            ([np.ones((3, 8), np.float32)], "2 arrays, not 1"),
        ]
        for arrays, expected in wrong:
            with pytest.raises(BindError, match=expected):
                loaded.bind(arrays, [])

    @pytest.mark.slow
    def test_shapes_follow_from_the_arrays(
        self, target: Target, device: Device, tmp_path: Path
    ) -> None:
        """Open dimensions of the Program are those of the arrays."""
        loaded = load_program(target, device, read_program(COPY), tmp_path)
        expected = [("X", (5, 8), "in"), ("Y", (5, 8), "out"), ("Z", (4,), "inout")]
        specs = loaded.specs([(5, 8), (4,)], [])
        assert [(spec.name, spec.shape, spec.role) for spec in specs] == expected

    @pytest.mark.slow
    @pytest.mark.parametrize("expected", FAULTS)
    def test_reports_the_kernels_own_faults(
        self, expected: str, target: Target, device: Device, tmp_path: Path
    ) -> None:
        """A kernel with an undefined operation ends with a KernelFault that names it."""
        launch = load_program(target, device, read_program(FAULTS[expected]), tmp_path).bind(
            [np.zeros(4, np.int32)], []
        )
        with pytest.raises(KernelFault, match=expected):
            launch.run()

    @pytest.mark.slow
    def test_identical_programs_have_the_same_binary(self, target: Target, tmp_path: Path) -> None:
        """The same Program, built in another folder and under another name, gives the same binary."""
        program = read_program(COPY)
        sources = [make_source(program, "one"), make_source(program, "two")]
        first, second = target.build(sources, tmp_path)
        assert first.binary == second.binary
        expected = [(tmp_path / "0" / name).read_bytes() for name in first.files]
        assert [(tmp_path / "1" / name).read_bytes() for name in second.files] == expected
