"""What a comparison of two sides asks about references, from trials made by hand."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import Case, Device, KernelWork, Mismatch, Outcome, Trial
from tileyard.engine.hosting import make_slots
from tileyard.verbs.regress.plan.pairs import Pair
from tileyard.verbs.regress.plan.regressing import ask_about_references, find_grounds


def wrong(wrong: int) -> Trial:
    """A trial with so many wrong elements of 100."""
    mismatch = Mismatch(output="C", index=(0,), got="1", want="2", wrong=wrong, total=100)
    return Trial(
        id="t",
        run="r",
        case="c",
        batch="c",
        target="cpu",
        outcome=Outcome.MISMATCH,
        mismatch=mismatch,
    )


@pytest.mark.parametrize(
    ("base", "head", "is_asked"), [(100, 98, True), (100, 3, False), (None, 100, False)]
)
def test_a_reference_is_doubted_where_both_sides_are_wrong_alike(
    base: int | None, head: int, is_asked: bool
) -> None:
    """A mistake of one side alone is that side's."""
    pairs = []
    for kernel, shares in (("gemm", {"base": base, "head": head}), ("right", {})):
        case = Case(id=kernel, work=KernelWork(kernel=kernel))
        failure = {side: wrong(share) for side, share in shares.items() if share is not None}
        pairs.append(Pair(kernel, case, case, failure=failure))
    question = (
        "all 2 builds of gemm differ in the same way from the reference: is the reference right?"
    )
    assert list(ask_about_references(pairs)) == ([question] if is_asked else [])


def test_a_host_that_joins_a_comparison_of_programs_has_the_same_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those with which it began: their times are compared."""
    one, like, other = (device for cpu in ("a", "a", "b") for device in make_slots(1, cpu))

    async def use(*_: object) -> tuple[Device, ...]:
        return (one,)

    monkeypatch.setattr("tileyard.verbs.regress.plan.regressing.use_hosts", use)
    checks: list[Callable[[Device], None]] = []
    bench = SimpleNamespace(hosts=SimpleNamespace(also_require=checks.append))
    request = SimpleNamespace(queue_limit_s=1.0)
    start = SimpleNamespace(hosts="ssh:a,b", devices=(), request=request)
    assert asyncio.run(find_grounds(cast(Any, start), cast(Any, bench), ())) == (one,)
    (check,) = checks
    check(like)
    with pytest.raises(UsageError, match="is anonymous slot, b, and no device of the run is"):
        check(other)
