"""Mistakes of public reports, restated: each is found at its line, or tile level does not show it."""

from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from tests.differential.conftest import load_module

from tileyard.ir.specs import tensor_specs
from tileyard.measure.inputs import make_inputs
from tileyard.sync.blocks import check_program
from tileyard.sync.findings import Finding
from tileyard.sync.words import describe_race

if TYPE_CHECKING:
    from collections.abc import Callable

    from tileyard.frontend.tilelang import Lowered

PUBLIC = Path(__file__).parent / "public.py"
GEMM = {"M": 64, "N": 64, "K": 64}

pytestmark = pytest.mark.slow


@dataclass(frozen=True, kw_only=True)
class Report:
    """A kernel of ``public.py``; ``kind`` is the finding on its line ``# here``, empty for none."""

    kernel: str
    kind: str = ""
    arguments: dict[str, int] = field(default_factory=lambda: {"steps": 4})


REPORTS = [
    Report(kernel="atomic_then_read"),
    Report(kernel="store_then_read"),
    Report(kernel="read_then_refill"),
    Report(kernel="store_then_read_reordered", kind="source changed in flight"),
    Report(kernel="atomic_then_read_reordered", kind="source changed in flight"),
    Report(kernel="read_then_refill_reordered", kind="read before arrival"),
    Report(kernel="read_then_refill_roles", kind="overwritten in flight"),
    Report(kernel="staging_reused", kind="source changed in flight", arguments={"waves": 3}),
    Report(kernel="running_mean", kind="race", arguments={"channels": 4}),
    Report(kernel="circular_wait", kind="deadlock"),
    Report(kernel="wait_after_use", kind="read before arrival", arguments=GEMM),
    Report(kernel="wait_left_out", kind="read before arrival", arguments=GEMM),
    Report(kernel="never_arrived", kind="deadlock", arguments={"N": 64}),
    Report(
        kernel="shared_operand_released_by_one", kind="overwritten before release", arguments=GEMM
    ),
    Report(kernel="parity_of_the_loop", kind="read before arrival"),
    # TileLang orders the threads of one role itself: docs/design/async.md
    Report(kernel="staging_reused_by_others", arguments={"waves": 3}),
    Report(kernel="staging_unfenced", arguments={"waves": 3}),
    Report(kernel="exchange_without_sync", arguments={"N": 64}),
    Report(kernel="shared_operand", arguments=GEMM),
]


def check(lowered: "Lowered") -> list[Finding]:
    """All findings of a kernel without dimensions and scalars."""
    inputs = make_inputs(tensor_specs(lowered.written, {}))
    checked = check_program(lowered.written, lowered.written_lines, inputs)
    return [*map(describe_race, lowered.races), *checked.findings]


@pytest.fixture(scope="module")
def public() -> ModuleType:
    """The file, whose import takes a second."""
    return load_module(PUBLIC)


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.kernel)
def test_a_public_mistake_is_found(
    report: Report, public: ModuleType, lower_prim_func: "Callable[..., Lowered]"
) -> None:
    """With its kind, at its line."""
    kernel: Any = getattr(public, report.kernel)
    lowered = lower_prim_func(kernel.get_tir(**report.arguments), kernel.out_idx)
    found = {(finding.kind, finding.access.line) for finding in check(lowered) if finding.access}
    if not report.kind:
        assert found == set()
        return
    lines = PUBLIC.read_text(encoding="utf-8").splitlines()
    first = next(n for n, line in enumerate(lines) if f"def {report.kernel}(" in line)
    here = 1 + next(n for n in range(first, len(lines)) if lines[n].endswith("# here"))
    assert (report.kind, here) in found


def test_each_kernel_of_the_file_is_judged() -> None:
    """None is left out."""
    text = PUBLIC.read_text(encoding="utf-8")
    assert {report.kernel for report in REPORTS} == {
        line.removeprefix("def ").partition("(")[0]
        for line in text.splitlines()
        if line.startswith("def ")
    }
