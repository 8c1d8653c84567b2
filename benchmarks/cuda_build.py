"""Builds 24 configs of a GEMM for a GPU, side by side: tileyard, and TileLang's own tuner.

    python benchmarks/cuda_build.py [--arch sm_90a,sm_80] [--rounds 3] [--ours 0,1,2,4,8] [--theirs 1,2,4,8]

No GPU is needed, and a CUDA toolkit for TileLang alone: its grouped compile works with nvcc only. The
ways take turns, and what is printed are medians of the rounds: of a process from its start to its
end, and of the compile phase alone, which begins once processes are started and TileLang is imported,
on both sides (for tileyard in a run of its own, in which the engine waits for that). 0 is the group
size that tileyard finds out by itself. TileLang's side is the compile phase of its AutoTuner in a
process of its own, with its cache off and as many threads as there are cores, which it does not take
by itself. The bound is taken in each round, in one process that lowers all 24 with TileLang's passes as
they are and compiles them one by one with our NVRTC: 1.15 x (lowering + NVRTC), both as CPU time over the
number of cores. tileyard's home is a new one each time, except that it has the image of the headers that
the first run on a machine makes; ``--cold`` takes that away, too.
"""

import argparse
import asyncio
import datetime
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tileyard.base.events import BuildEnded, Event, RunStarted
from tileyard.base.model import Elaborated, Outcome
from tileyard.base.settings import read_settings
from tileyard.engine.driver import Driver
from tileyard.service import runs as service_runs
from tileyard.service.bench import Bench
from tileyard.service.opened import carry_out
from tileyard.targets.cuda.nvrtc import Nvrtc, split_source
from tileyard.verbs.compile.options import CompileOptions, start_compile
from tileyard.workers.protocol import BuildKernels, BuiltKernels, CompilerReply

CORES = len(os.sched_getaffinity(0))
KERNEL = Path(__file__).with_name("cuda_gemm.py")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One way, run once. ``cpu_s`` is of the whole tree of processes."""

    whole_s: float
    compile_s: float
    cpu_s: float
    load: float


def main() -> None:
    """Run each way in turn, ``--rounds`` times, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="sm_90a,sm_80", metavar="NAME,...")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ours", default="0,1,2,4,8", metavar="N,...", help="our group sizes")
    parser.add_argument("--theirs", default="1,2,4,8", metavar="N,...", help="TileLang's")
    parser.add_argument("--cold", action="store_true", help="no image of the headers is kept")
    parser.add_argument(
        "--plain-lowering", action="store_true", help="TileLang's passes as they are"
    )
    parser.add_argument("--no-bound", action="store_true", help="do not measure the bound")
    parser.add_argument("--tuner", type=int, help=argparse.SUPPRESS)  # this process is TileLang's
    parser.add_argument("--engine", type=int, help=argparse.SUPPRESS)  # this process is tileyard's
    parser.add_argument(
        "--steps", help=argparse.SUPPRESS
    )  # this process measures the bound's parts
    options = parser.parse_args()
    if options.engine is not None:
        asyncio.run(run_engine(options.arch, options.engine))
        return
    if options.tuner is not None:
        run_tuner(options.arch, options.tuner)
        return
    if options.steps is not None:
        run_steps(options.arch, Path(options.steps))
        return
    for arch in options.arch.split(","):
        options.arch = arch
        compare(options)


def compare(options: argparse.Namespace) -> None:
    """Run all ways for one architecture, and print its table."""
    ways = [("TileLang", int(size)) for size in options.theirs.split(",") if size]
    ways += [("tileyard", int(size)) for size in options.ours.split(",") if size]
    found: dict[tuple[str, int], list[Run]] = {way: [] for way in ways}
    bounds: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        kept = Path(name) / "caches"
        if not options.cold and any(who == "tileyard" for who, _ in ways):
            run_ours(options, 8, kept)
        for _ in range(options.rounds):
            for who, size in ways:
                run = (
                    run_ours(options, size, kept)
                    if who == "tileyard"
                    else run_theirs(options, size)
                )
                found[who, size].append(run)
                print(
                    f"  {who:9}{size:3} {run.whole_s:7.2f} s, compiling {run.compile_s:6.2f} s, "
                    f"{run.cpu_s:6.1f} CPU s, load {run.load:.1f}",
                    file=sys.stderr,
                    flush=True,
                )
            if not options.no_bound:
                bounds.append(find_bound(options, kept))
    for line in describe(options.arch, found):
        print(line)
    for line in describe_bound(found, bounds):
        print(line)


def describe(arch: str, found: dict[tuple[str, int], list[Run]]) -> Iterator[str]:
    """The table, with ratios to TileLang's default and to its best group size."""

    def median(way: tuple[str, int], what: str) -> float:
        return statistics.median(getattr(run, what) for run in found[way])

    def best(what: str) -> float | None:
        return min(
            (median(way, what) for way in found if way[0] == "TileLang" and way[1] > 1),
            default=None,
        )

    def alone(what: str) -> float | None:
        return median(("TileLang", 1), what) if ("TileLang", 1) in found else None

    loads = [run.load for runs in found.values() for run in runs]
    yield (
        f"24 GEMM configs for {arch}, {CORES} cores, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}, "
        f"load {min(loads):.1f} to {max(loads):.1f}"
    )
    yield "                      whole    / grouped  / default   compile  / grouped  / default    CPU s"
    for way in found:
        parts = []
        for what in ("whole_s", "compile_s"):
            value = median(way, what)
            ratios = [
                f"{value / base:9.2f} x" if base else " " * 11 for base in (best(what), alone(what))
            ]
            parts.append(f"{value:7.2f} s {''.join(ratios)}")
        size = "auto" if way[1] == 0 else way[1]
        yield f"{way[0]:9} group {size:>4} {'   '.join(parts)} {median(way, 'cpu_s'):8.1f}"


def describe_bound(found: dict[tuple[str, int], list[Run]], bounds: list[float]) -> Iterator[str]:
    """Our compile phases beside the bound of the same rounds."""
    if not bounds:
        return
    middle = statistics.median(bounds)
    yield f"bound, 1.15 x (lowering's CPU / {CORES} cores + NVRTC): {middle:.2f} s"
    for (who, size), runs in found.items():
        if who == "tileyard":
            pairs = zip(runs, bounds, strict=True)
            ratio = statistics.median(run.compile_s / bound for run, bound in pairs)
            yield f"  group {size or 'auto':>4} compiles in {ratio:.2f} x the bound"


def find_bound(options: argparse.Namespace, kept: Path) -> float:
    """What the bound comes to in this round, in seconds."""
    argv = ["setarch", "-R", sys.executable, __file__, "--arch", options.arch, "--steps", str(kept)]
    _, said = timed(argv, {**os.environ, "TILEYARD_PLAIN_LOWERING": "1"})
    lower_s, nvrtc_s = json.loads(said.splitlines()[-1])
    print(
        f"  lowering {lower_s:.2f} CPU s, NVRTC {nvrtc_s:.2f} CPU s on one core",
        file=sys.stderr,
        flush=True,
    )
    return 1.15 * (lower_s + nvrtc_s) / CORES


def run_steps(arch: str, caches: Path) -> None:
    """Lower the 24 with TileLang's passes as they are, and compile them one by one; print CPU times."""
    os.environ["TILELANG_DEFAULT_TARGET"] = json.dumps({"kind": "cuda", "arch": arch})
    from cuda_gemm import CONFIGS, gemm  # after the environment was set

    from tileyard.frontend.tilelang import make_kernel
    from tileyard.targets.cuda.lowering import lower

    nvrtc = Nvrtc(arch, caches, "bound")
    made = [make_kernel(gemm(**config), with_tir=True) for config in CONFIGS]
    sources = [Elaborated(kernel=one.kernel, tir=one.tir) for one in made]
    marks = [time.process_time()]
    lowered = [split_source(lower(source, arch).source) for source in sources]
    marks.append(time.process_time())
    nvrtc.compile(*lowered[0], ())  # reads the headers, or the image of them
    marks.append(time.process_time())
    for headers, body in lowered:
        nvrtc.compile(headers, body, ())
    marks.append(time.process_time())
    print(json.dumps([marks[1] - marks[0], marks[3] - marks[2]]))


def run_ours(options: argparse.Namespace, size: int, kept: Path) -> Run:
    """``tileyard compile`` with a home of its own, and then its compile phase with another."""
    argv = [sys.executable, "-m", "tileyard", "compile", str(KERNEL), "--all-configs", "--json"]
    argv += ["--target", f"cuda:{options.arch}", "--group-size", str(size or "auto")]
    run, said = at_home(argv, options, kept)
    built = sum(one["outcome"] == "passed" for one in json.loads(said)["configs"])
    argv = [sys.executable, __file__, "--arch", options.arch, "--engine", str(size)]
    _, said = at_home(argv, options, kept)
    phase = json.loads(said.splitlines()[-1])
    if (built, phase["built"]) != (24, 24):
        sys.exit(f"tileyard built {built} and {phase['built']} of 24")
    return Run(whole_s=run.whole_s, compile_s=phase["compile_s"], cpu_s=run.cpu_s, load=run.load)


def at_home(argv: list[str], options: argparse.Namespace, kept: Path) -> tuple[Run, str]:
    """Run one of our programs in a home that has nothing but, perhaps, images of headers."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        if kept.is_dir() and not options.cold:
            shutil.copytree(kept, home / "caches", copy_function=os.link)
        env = {**os.environ, "TILEYARD_HOME": name, "TILEYARD_LOCK_DIR": str(home / "lock")}
        if options.plain_lowering:
            env["TILEYARD_PLAIN_LOWERING"] = "1"
        found = timed(argv, env)
        if not kept.is_dir():
            shutil.copytree(home / "caches", kept, copy_function=os.link)
    return found


async def run_engine(arch: str, size: int) -> None:
    """Our compile phase: as the engine builds, once author and compile workers are ready."""

    class Told:
        def tell_event(self, event: Event) -> None:
            if isinstance(event, RunStarted):
                marks.append(event.at)
            if isinstance(event, BuildEnded):
                marks.append(event.at)

    class ReadyDriver(Driver):
        async def open(self) -> None:
            await super().open()
            pool = self._pool
            builder = ("", f"cuda:{arch}")
            workers = [
                await pool._worker((builder, i))  # noqa: SLF001
                for i in range(len(pool.cores))
            ]
            for worker in workers:
                await worker.send(BuildKernels(kernels=()))
            for worker in workers:
                while not isinstance(await worker.receive(CompilerReply), BuiltKernels):
                    pass

    marks: list[float] = []
    settings = read_settings(os.environ, Path.cwd())
    options: CompileOptions = {
        "target": f"cuda:{arch}",
        "all_configs": True,
        "group_size": size or "auto",
    }
    start = start_compile(str(KERNEL), "gemm", options)
    service_runs.Driver = ReadyDriver  # type: ignore[misc]
    bench = Bench(settings, Told())  # type: ignore[arg-type]
    result = await carry_out(start, bench, asyncio.Event())
    built = sum(one.outcome is Outcome.PASSED for one in result.configs)
    print(json.dumps({"built": built, "compile_s": max(marks) - marks[0]}))


def run_theirs(options: argparse.Namespace, size: int) -> Run:
    """TileLang's tuner in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        env = {
            **os.environ,
            "TILELANG_DEFAULT_TARGET": json.dumps({"kind": "cuda", "arch": options.arch}),
            "TILELANG_AUTO_TUNING_CPU_COUNTS": str(CORES),
            "TILELANG_DISABLE_CACHE": "1",
            "TILELANG_CACHE_DIR": name,
            "TMPDIR": name,
        }
        argv = [sys.executable, __file__, "--arch", options.arch, "--tuner", str(size)]
        run, said = timed(argv, env)
    found = json.loads(said.splitlines()[-1])
    if found["built"] != 24:
        sys.exit(f"TileLang built {found['built']} of 24")
    return Run(whole_s=run.whole_s, compile_s=found["compile_s"], cpu_s=run.cpu_s, load=run.load)


def run_tuner(arch: str, size: int) -> None:
    """The compile phase of AutoTuner.run, which needs no device."""
    from cuda_gemm import CONFIGS, gemm  # after the environment was set
    from tilelang.autotuner import AutoTuner

    tuner = AutoTuner.from_kernel(gemm, CONFIGS)
    target = {"kind": "cuda", "arch": arch}
    tuner.set_compile_args(out_idx=[-1], target=target, execution_backend="tvm_ffi")
    started = time.monotonic()
    prepare = tuner._prepare_compile_execution  # noqa: SLF001 - what `run` does before it needs a device
    jit = tuner._ensure_jit_functions()  # noqa: SLF001
    pool, futures, *_ = prepare([dict(config) for config in CONFIGS], size > 1, size, *jit)
    results = [one for future in futures for one in future.result()]
    seconds = time.monotonic() - started
    pool.shutdown()
    built = sum(kernel is not None for _, _, kernel, _ in results)
    for _, _, _, error in results:
        if error is not None:
            print(str(error)[-300:], file=sys.stderr)
    print(json.dumps({"built": built, "compile_s": seconds}))


def timed(argv: list[str], env: dict[str, str]) -> tuple[Run, str]:
    """Run a program to its end: how long it took, and what it printed."""
    load = os.getloadavg()[0]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(argv, env=env, check=False, capture_output=True, text=True)
    whole_s = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"{' '.join(argv)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(whole_s=whole_s, compile_s=0.0, cpu_s=cpu_s, load=load), done.stdout


if __name__ == "__main__":
    main()
