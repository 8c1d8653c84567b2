"""Pass options that are given on the command line."""

import asyncio
from dataclasses import dataclass, field

from tileyard.artifacts.keys import build_key
from tileyard.engine.pass_options import WithPassOptions
from tileyard.model import Elaborated, Kernel, Outcome
from tileyard.workers.protocol import (
    AuthorReply,
    AuthorRequest,
    DescribeKernels,
    ElaborateConfig,
    ElaboratedConfig,
    Failed,
    Kernels,
)

KERNEL = Kernel(name="add", tir="abc", pass_options={"tl.one": 1, "tl.two": 2})


@dataclass
class OneKernel:
    """An author of one kernel."""

    cores: tuple[int, ...] = (0,)
    lanes: int = 1
    asked: list[AuthorRequest] = field(default_factory=list)

    async def begin(self) -> None:
        """Nothing has to be started."""

    async def ask(self, request: AuthorRequest, limit_s: float) -> AuthorReply:
        """The kernel, or that there is none to describe."""
        self.asked.append(request)
        if isinstance(request, ElaborateConfig):
            return ElaboratedConfig(elaborated=Elaborated(kernel=KERNEL), log="said")
        return Kernels(kernels=())

    async def close(self) -> None:
        """Nothing was started."""


def ask(author: WithPassOptions, request: AuthorRequest) -> AuthorReply:
    """One answer."""
    return asyncio.run(author.ask(request, 1.0))


def elaborate(*, with_tir: bool) -> ElaborateConfig:
    """A question for the kernel."""
    return ElaborateConfig(kernel="add", arguments={}, config={}, with_tir=with_tir)


def test_options_take_the_place_of_the_kernels_own() -> None:
    """Options that are given win over a kernel's own of the same names, and the others stay."""
    reply = ask(
        WithPassOptions(OneKernel(), {"tl.two": 3, "tl.new": True}), elaborate(with_tir=True)
    )
    expected = {"tl.one": 1, "tl.two": 3, "tl.new": True}
    assert isinstance(reply, ElaboratedConfig)
    assert reply.elaborated.kernel.pass_options == expected
    assert reply.log == "said"


def test_options_are_part_of_the_build_key() -> None:
    """What is built with further options is another artifact."""
    reply = ask(WithPassOptions(OneKernel(), {"tl.new": 1}), elaborate(with_tir=True))
    assert isinstance(reply, ElaboratedConfig)
    with_option = build_key(reply.elaborated.kernel, "cuda:sm_80", "f", {})
    assert with_option != build_key(KERNEL, "cuda:sm_80", "f", {})


def test_no_option_changes_nothing() -> None:
    """Without options an author's answers are passed on as they are, whatever the target takes."""
    reply = ask(WithPassOptions(OneKernel(), {}), elaborate(with_tir=False))
    expected = ElaboratedConfig(elaborated=Elaborated(kernel=KERNEL), log="said")
    assert reply == expected


def test_a_target_without_passes_refuses_options() -> None:
    """Where the target reads no TIR, each config is refused in a line that names the options."""
    author = OneKernel()
    reply = ask(WithPassOptions(author, {"tl.new": 1}), elaborate(with_tir=False))
    assert isinstance(reply, Failed)
    assert (reply.outcome, author.asked) == (Outcome.COMPILE_ERROR, [])
    assert "tl.new" in reply.message


def test_other_questions_are_passed_on() -> None:
    """Questions that are no elaborations reach the author, and its answers come back."""
    expected = Kernels(kernels=())
    assert ask(WithPassOptions(OneKernel(), {"tl.new": 1}), DescribeKernels()) == expected
