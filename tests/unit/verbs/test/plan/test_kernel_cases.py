"""Suites of kernels: what an author says of a file becomes cases."""

import asyncio
from pathlib import Path

import pytest

from tileyard.base.errors import KernelFileError, UsageError
from tileyard.base.model import KernelWork, Side, Tolerance
from tileyard.base.settings import Settings
from tileyard.engine.authors import Authors
from tileyard.frontend.declare import KernelInfo
from tileyard.verbs.test.plan.kernel_cases import read_suite_with_kernels
from tileyard.verbs.test.plan.reading import read_suite
from tileyard.verbs.test.result.result import Rule, Suite
from tileyard.workers.protocol import (
    AnswerT,
    AuthorReply,
    DescribeKernels,
    Failed,
    Kernels,
    Question,
)

GEMM = KernelInfo(
    name="gemm",
    file="k.py",
    style="tileyard",
    parameters=("M", "N", "block"),
    required=("M", "N"),
    defaults={"block": 32},
    tunable=("block",),
    shapes={"large": {"M": 8, "N": 8}, "small": {"M": 2, "N": 2}},
    tolerance=Tolerance(rtol=0.1, atol=0.1),
    line=7,
)
SCALE = KernelInfo(name="scale", file="k.py", style="jit", parameters=("n",), required=("n",))


class Describing:
    """An author that answers one question and counts how often it was closed."""

    cores = (0,)

    def __init__(self, reply: AuthorReply) -> None:
        self.reply = reply
        self.asked: list[str] = []
        self.closed = 0

    def make(self, side: Side, file: str) -> "Describing":
        """The author of a file."""
        self.asked.append(file)
        return self

    def read(self, path: Path, settings: Settings) -> Suite:
        """The suite, whose files are all described by this one."""

        async def whole() -> Suite:
            authors = Authors((Side(),), (0,), self.make)
            try:
                return await read_suite_with_kernels(path, settings, authors)
            finally:
                await authors.close()

        return asyncio.run(whole())

    async def begin(self) -> None:
        """Nothing to start."""

    async def ask(self, request: Question[AnswerT], limit_s: float) -> AnswerT | Failed:
        """The reply."""
        assert isinstance(request, DescribeKernels)
        assert limit_s > 0
        return self.reply if isinstance(self.reply, Failed) else request.check(self.reply)

    async def close(self) -> None:
        """Count."""
        self.closed += 1


@pytest.fixture
def kernels(tmp_path: Path) -> Path:
    """A file of kernels, which nobody imports here."""
    path = tmp_path / "k.py"
    path.write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    return path


def read(path: Path, settings: Settings, *kernels: KernelInfo) -> Suite:
    """Read a suite whose files hold these kernels."""
    author = Describing(Kernels(kernels=kernels or (GEMM, SCALE)))
    suite = author.read(path, settings)
    assert author.closed == len(author.asked)
    return suite


def test_a_python_file_is_a_suite(kernels: Path, settings: Settings) -> None:
    """Each kernel is a testcase, each shape a case; what lacks arguments is skipped, and why is said."""
    suite = read(kernels, settings)
    expected = ["gemm/large", "gemm/small", "scale/default"]
    assert [case.id for case in suite.cases] == expected
    assert suite.cases[1].work == KernelWork(
        file=str(kernels),
        kernel="gemm",
        arguments={"M": 2, "N": 2},
        shape="small",
        tolerance=Tolerance(rtol=0.1, atol=0.1),
    )
    reason = "scale needs a value for n, and no shape gives it"
    assert suite.skip == (Rule(cases="scale/default", reason=reason),)
    assert suite.name == "k"
    assert [case.where for case in suite.cases] == [f"{kernels}:{line}" for line in (7, 7, 1)]


TOML = """
name = "kernels"
family = "matmul"
[[testcase]]
name = "gemm"
file = "k.py"
kernel = "gemm"
arguments = { N = 4 }
config = { block = 64 }
eps = 0.5
[[testcase.case]]
name = "wide"
shape = "small"
arguments = { M = 3 }
[[testcase.case]]
name = "plain"
config = { block = 16 }
[[testcase]]
name = "all"
file = "k.py"
kernel = "gemm"
"""


def test_testcases_of_kernels_complete_their_arguments(
    tmp_path: Path, kernels: Path, settings: Settings
) -> None:
    """A shape's arguments are there for those that are not given, and the narrower table wins."""
    path = tmp_path / "suite.toml"
    path.write_text(TOML, encoding="utf-8")
    suite = read(path, settings)
    wide, plain, *rest = suite.cases
    expected = KernelWork(
        file=str(kernels),
        kernel="gemm",
        arguments={"M": 3, "N": 4},
        shape="small",
        config={"block": 64},
        tolerance=Tolerance(rtol=0.5, atol=0.5),
    )
    assert wide.work == expected
    assert isinstance(plain.work, KernelWork)
    assert (plain.work.arguments, plain.work.config) == ({"M": 8, "N": 4}, {"block": 16})
    assert [case.id for case in rest] == ["all/large", "all/small"]
    assert {case.family for case in suite.cases} == {"matmul"}


def test_a_case_may_name_its_pipeline(tmp_path: Path, kernels: Path, settings: Settings) -> None:
    """It is a key of configs, whatever the kernel's parameters are."""
    assert kernels.exists()
    path = tmp_path / "suite.toml"
    path.write_text(TOML.replace("block = 16", 'pipeline = "tileyard"'), encoding="utf-8")
    work = read(path, settings).cases[1].work
    assert isinstance(work, KernelWork)
    assert work.config == {"block": 64, "pipeline": "tileyard"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("{ M = 3 }", "{ pipeline = 'none' }"), "suite.toml:11: gemm has no parameter 'pipeline'"),
        (('kernel = "gemm"', 'kernel = "gem"'), "suite.toml:11: there is no kernel 'gem'"),
        (('shape = "small"', 'shape = "tiny"'), "suite.toml:11: gemm has no shape 'tiny'"),
        (("{ M = 3 }", "{ K = 3 }"), "suite.toml:11: gemm has no parameter 'K'"),
        (('kernel = "gemm"\n', ""), "suite.toml:10: the file holds 2 kernels: gemm, scale"),
        (('kernel = "gemm"', 'kernel = "scale"'), "suite.toml:11: scale has no "),
    ],
)
def test_what_a_file_does_not_hold_is_refused(
    tmp_path: Path,
    kernels: Path,
    settings: Settings,
    change: tuple[str, str],
    problem: str,
) -> None:
    """Names that do not exist are told with file and line of the case."""
    assert kernels.exists()
    path = tmp_path / "suite.toml"
    path.write_text(TOML.replace(*change, 1), encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        read(path, settings)
    assert problem in str(refused.value)


def test_a_file_that_cannot_be_described_is_refused(kernels: Path, settings: Settings) -> None:
    """What the user's file raised is told, and its author is closed all the same."""
    author = Describing(Failed(message="k.py:1: RuntimeError: imported", log="trace"))
    with pytest.raises(KernelFileError, match="imported") as refused:
        author.read(kernels, settings)
    expected = ("trace", 1)
    assert (refused.value.trace, author.closed) == expected


def test_kernels_without_cases_need_an_author(kernels: Path, settings: Settings) -> None:
    """Reading without an author refuses a file of kernels rather than import it."""
    with pytest.raises(UsageError, match=r"k\.py:1: lists no case"):
        read_suite(kernels, settings)


def test_a_suite_of_programs_asks_no_author(tmp_path: Path, settings: Settings) -> None:
    """Where there is no kernel, no author is made."""
    path = tmp_path / "suite.toml"
    path.write_text('name = "s"\n[[testcase]]\nname = "t"\nrun = ["true"]\n', encoding="utf-8")
    suite = read(path, settings)
    expected = ["t/default"]
    assert [case.id for case in suite.cases] == expected


def test_the_type_of_a_kernel_is_what_it_is_told(kernels: Path, settings: Settings) -> None:
    """An argument or a default that names a type says what a case stands for; names hold no spaces."""
    typed = KernelInfo(
        name="cast",
        file="k.py",
        style="jit",
        parameters=("n", "in_dtype"),
        required=(),
        defaults={"in_dtype": "float16"},
        shapes={"half / any": {"n": 4}, "single": {"n": 4, "in_dtype": "float32"}},
    )
    suite = read(kernels, settings, typed)
    expected = [("half-any", "float16"), ("single", "float32")]
    assert [(case.name, case.dtype) for case in suite.cases] == expected
