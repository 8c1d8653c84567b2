"""What a compile worker may take of time and memory, and who is blamed where it is too much."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest
from tests.samples import IS_WHOLE

from tileyard.artifacts.manifest import Build
from tileyard.base.model import BuildKey, Elaborated, Kernel, Outcome, Side
from tileyard.base.settings import Settings
from tileyard.engine import compilers
from tileyard.engine.compilers import Builder, CompilePool
from tileyard.workers.protocol import BuildKernel

pytestmark = pytest.mark.slow

LIMIT_S = 1.0
"""Less than what a target does that is slow, and much more than what one does that is not."""


HITS = (
    ("begun", signal.SIGKILL),
    ("starting", signal.SIGSTOP),
    ("idle", signal.SIGKILL),
    ("building", signal.SIGSTOP),
    *(
        (
            ("begun", signal.SIGSTOP),
            ("starting", signal.SIGKILL),
            ("idle", signal.SIGSTOP),
            ("building", signal.SIGKILL),
        )
        if IS_WHOLE
        else ()
    ),
)
"""In which state a worker is hit, and how."""


@pytest.fixture(autouse=True)
def _findable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile workers find the target."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


@asynccontextmanager
async def open_pool(home: Path) -> AsyncIterator[CompilePool]:
    """A pool of one worker."""
    settings = Settings(
        home=home,
        lock_dir=home,
        cores=(0,),
        plugins={"slow": "slow_target:SlowTarget"},
    )
    pool = CompilePool(settings, {"": Side()}, (0,))
    try:
        yield pool
    finally:
        await pool.close()


def make_kernels(*names: str) -> list[BuildKernel]:
    """Kernels of these names, to be built."""
    return [
        BuildKernel(
            case=name,
            build=BuildKey(f"{number:040}"),
            elaborated=Elaborated(kernel=Kernel(name=name)),
            options={},
        )
        for number, name in enumerate(names)
    ]


async def build_in(
    pool: CompilePool, *names: str, target: str = "slow", limit_s: float = LIMIT_S
) -> dict[str, Build]:
    """Build kernels of these names together."""
    built = pool.build((Builder("", target), 0), make_kernels(*names), [limit_s] * len(names))
    return {one.case: one async for one in built}


def build(home: Path, *names: str, target: str = "slow") -> dict[str, Build]:
    """Build kernels of these names together, in a worker of their own."""

    async def run() -> dict[str, Build]:
        async with open_pool(home) as pool:
            return await build_in(pool, *names, target=target)

    return asyncio.run(run())


async def find_compiler() -> psutil.Process:
    """The compile worker of this test, once it is there."""
    while True:
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                line = process.cmdline()
                if "tileyard.workers.compiler" in line and not any("keeper" in w for w in line):
                    return process
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(("state", "how"), HITS)
def test_lost_persistent_workers_are_started_again(
    state: str, how: signal.Signals, tmp_path: Path
) -> None:
    """As in Bazel, in whatever state one has killed or stopped them; the current build is lost with it."""

    async def run() -> dict[str, Build]:
        async with open_pool(tmp_path) as pool:
            if state == "begun":
                await pool.begin(Builder("", "slow"))
                (await find_compiler()).send_signal(how)
            elif state != "starting":
                await build_in(pool, "before", limit_s=60.0)
            building = asyncio.create_task(build_in(pool, "slow", limit_s=60.0))
            if state in ("starting", "building"):
                await asyncio.sleep(0.01 if state == "starting" else 0.2)
            if state != "begun":
                (await find_compiler()).send_signal(how)
            return {**await building, **await build_in(pool, "after", limit_s=60.0)}

    built = outcomes(asyncio.run(run()))
    assert built.pop("slow") in (Outcome.PASSED, Outcome.INFRA_ERROR)  # who asked asks again
    assert built == {"after": Outcome.PASSED}


def test_a_worker_that_was_begun_is_the_one_that_builds(tmp_path: Path) -> None:
    """No second one is started beside it; one that is never asked ends with the pool."""

    async def run() -> tuple[psutil.Process, psutil.Process]:
        async with open_pool(tmp_path) as pool:
            await pool.begin(Builder("", "slow"))
            begun = await find_compiler()
            built = await build_in(pool, "fine", limit_s=60.0)
            assert outcomes(built) == {"fine": Outcome.PASSED}
            builder = await find_compiler()
        async with open_pool(tmp_path) as pool:
            await pool.begin(Builder("", "slow"))
            unasked = await find_compiler()
        assert not unasked.is_running()
        return begun, builder

    begun, builder = asyncio.run(run())
    assert begun == builder


def outcomes(built: dict[str, Build]) -> dict[str, Outcome]:
    """How each kernel's build ended."""
    return {name: one.outcome for name, one in built.items()}


def test_what_kernels_share_takes_nothing_of_their_limit(tmp_path: Path) -> None:
    """A kernel in whose build something is made for all is not blamed for the time that this takes."""
    expected = {"shared": Outcome.PASSED, "fine": Outcome.PASSED}
    built = build(tmp_path, "shared", "fine")
    assert outcomes(built) == expected
    assert sum(one.build_s for one in built.values()) < LIMIT_S


def test_warming_up_takes_nothing_of_the_first_limit(tmp_path: Path) -> None:
    """A worker that imports its compiler while it has been asked already has time to do so."""
    expected = {"fine": Outcome.PASSED}
    assert outcomes(build(tmp_path, "fine", target="slow:slow")) == expected


def test_time_of_their_own_counts_after_what_is_shared(tmp_path: Path) -> None:
    """The limit goes on where it stood: a kernel that hangs after that is ended, and alone blamed."""
    expected = {
        "shared": Outcome.PASSED,
        "slow": Outcome.TIMEOUT,
        "fine": Outcome.PASSED,
    }
    built = build(tmp_path, "shared", "slow", "fine")
    assert outcomes(built) == expected
    assert "build limit of 1 s" in built["slow"].message


def test_what_is_shared_has_a_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What hangs while it is made for all is ended by a limit of its own."""
    monkeypatch.setattr(compilers, "SHARED_LIMIT_S", 0.5)
    expected = "limit of 0.5 s for what kernels share"
    built = build(tmp_path, "shared_hang")
    assert outcomes(built) == {"shared_hang": Outcome.TIMEOUT}
    assert expected in built["shared_hang"].message


def test_each_worker_that_dies_is_judged_by_its_own_last_words(tmp_path: Path) -> None:
    """One that says that it was refused memory ends as such, the next that dies in silence does not."""
    expected = {
        "memory": Outcome.OUT_OF_MEMORY,
        "abort": Outcome.CRASHED,
        "fine": Outcome.PASSED,
    }
    built = build(tmp_path, "memory", "abort", "fine")
    assert outcomes(built) == expected
    assert "LLVM ERROR: out of memory" in built["memory"].printed
    assert built["abort"].printed == ""
