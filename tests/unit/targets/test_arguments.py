"""Kernels that are called with numbers for which their rule was not evaluated."""

import numpy as np
import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import Rule
from tileyard.ir.nodes import Buffer, Const, Op, Program, Scalar, Tensor, Var
from tileyard.ir.printer import print_program
from tileyard.targets.arguments import guard


def test_a_kernel_answers_only_for_numbers_for_which_its_rule_was_evaluated() -> None:
    """Sizes and scalars that ``where`` takes are compared with the build's, or given to the rule once."""
    n, m = Var("n", "int32"), Var("m", "int32")
    params = (
        Tensor(
            Buffer("A", "float32", (m, Op("mul", (n, Const(2, "int32")), "int32")), "global"), "in"
        ),
        Tensor(Buffer("B", "float32", (m,), "global"), "out"),
        Scalar(Var("k", "int32")),
    )
    program = Program("scaled", params, (m, n), (), (), (), ())
    rule = Rule(
        text="where of scaled (a.py:3)", numbers={"n": 4, "k": 2}, signature=print_program(program)
    )
    array = np.zeros
    run = guard(lambda *given: len(given), rule)
    assert run(array((3, 8)), 2) == 2
    assert run(array((9, 8)), array(9), np.int32(2)) == 3
    assert run(array((3, 8)), "2") == 2  # the kernel says what is wrong
    says = (
        r"where of scaled \(a.py:3\) was evaluated for n=4 k=2 when this kernel was built, and "
        r"not for n={} k={}"
    )
    for given, n_is, k_is in (((array((3, 10)), 2), 5, 2), ((array((3, 8)), array(3), 3), 4, 3)):
        with pytest.raises(UsageError, match=says.format(n_is, k_is)):
            run(*given)
    asked: list[object] = []
    evaluated = guard(lambda *given: len(given), rule, asked.append)
    assert [evaluated(array((3, 10)), 2) for _ in range(2)] == [2, 2]
    assert asked == [{"n": 5, "k": 2}]
    assert guard(len, None) is len
