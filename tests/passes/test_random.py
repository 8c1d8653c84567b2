"""Random bodies of pipelined loops: whatever is pipelined means the same, and the checker is silent."""

import os

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from tests.passes import generated
from tests.passes.cases import faults_of, is_pipelined, run_text

from tileyard.ir.nodes import Roles
from tileyard.workers.pass_steps import StepChecker

SAMPLE = 25
EXAMPLES = int(os.environ.get("TILEYARD_PASS_PROGRAMS", SAMPLE))
# The time limit of a test is for the sample. Its signal is lost in a callback of the garbage collector, as
# Hypothesis has one: all examples pass then, and pytest reports an unraisable exception.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(10 * max(EXAMPLES, SAMPLE))]
PIECES = (
    *generated.PIECES,
    "w@ = atomic_add($O[0, 0], 1.0)\nfill($F, w@)",
    "atomic_add($O[0, 1], 1.0)",
)


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A Program of one or two loops."""
    return generated.make_program(lambda texts: draw(st.sampled_from(texts)), PIECES)


@settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(programs(), st.integers(0, 9), st.sampled_from(["sm_80", "sm_90a"]))
def test_random_loops_do_the_same(text: str, trips: int, pipeline: str) -> None:
    """For all stages and iterations; beyond the sample after every pass; wrong as written is no example."""
    steps = run_text(text, pipeline)
    arrays = generated.make_arrays()
    checker = StepChecker(steps[0], arrays, [trips])
    assume(not checker.find_fault(steps[0]))
    has_roles = any(isinstance(stmt, Roles) for stmt in steps[-1].program.body)
    event("roles" if has_roles else "pipelined" if is_pipelined(steps[-1]) else "as it is")
    if EXAMPLES > SAMPLE:
        assert faults_of(steps, arrays, [trips]) == []
    assert checker.find_fault(steps[-1]) == ""
