"""What our pipeline and TileLang's make of the same kernels: figures of binaries, and time to build.

    python benchmarks/pipelines.py [--arch sm_80,sm_90a] [--kernels NAME,...] [--configs]

No GPU is needed. Nine kernels of ``pipeline_kernels.py`` are built with both pipelines; each cell has
TileLang's figure and ours. Barriers and waits are those in the generated CUDA: barriers of threads, and waits
for groups, phases and products. With ``--configs`` the 24 configs of ``cuda_gemm.py`` are built with both as
well, by ``tileyard compile`` with nothing kept.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tileyard.base.errors import TileyardError
from tileyard.base.model import Elaborated, Outcome
from tileyard.frontend.discover import find_kernels, import_file
from tileyard.frontend.found import Found, lower_config
from tileyard.passes.pipeline import PIPELINES
from tileyard.targets.base import Source
from tileyard.targets.own_sources import read_reported

if TYPE_CHECKING:
    from tileyard.targets.cuda.target import CudaTarget

HERE = Path(__file__).parent
BARRIER = re.compile(r"__syncthreads|__sync_thread_partial|named_barrier|NamedBarrier|bar\.sync")
WAIT = re.compile(r"cp_async_wait|\.wait\(|warpgroup_wait|wait_wgmma|tma_store_wait")


class Figures(NamedTuple):
    """What a binary takes, and how often its source waits; ``failure`` where there is none."""

    registers: int = 0
    spills: int = 0
    shared: int = 0
    code: int = 0
    barriers: int = 0
    waits: int = 0
    failure: str = ""


def build(found: Found, target: "CudaTarget", pipeline: str) -> Figures:
    """The figures of one kernel behind a pipeline, empty for TileLang's own."""
    try:
        made = lower_config(found, {}, {}, with_tir=True, pipeline=pipeline)
    except TileyardError as error:
        return Figures(failure=error.message)
    elaborated = Elaborated(kernel=made.kernel, tir=made.tir)
    with tempfile.TemporaryDirectory() as folder:
        (built,) = target.build([Source(elaborated=elaborated, options={})], Path(folder))
        if built.outcome is not Outcome.PASSED:
            said = built.diagnostic.message if built.diagnostic is not None else built.message
            return Figures(failure=said or built.outcome.value)
        (taken,) = read_reported(built.details).resources
        text = (Path(folder) / "0" / "kernel.cu").read_text()
    return Figures(
        registers=taken.registers,
        spills=taken.spilled_bytes,
        shared=taken.shared_bytes + (taken.dynamic_shared_bytes or 0),
        code=taken.code_bytes,
        barriers=len(BARRIER.findall(text)),
        waits=len(WAIT.findall(text)),
    )


def compare(kernels: dict[str, Found], architecture: str) -> int:
    """Print the table of one architecture; how many of ours have no spill and no barrier more."""
    from tileyard.targets.cuda.target import CudaTarget

    target = CudaTarget(architecture)
    target.warm_up()
    heads = ("registers", "spills", "shared", "code", "barriers", "waits")
    print(f"\n{architecture:20}" + "".join(f"{head:>16}" for head in heads))
    good = 0
    for name, found in kernels.items():
        theirs, ours = build(found, target, ""), build(found, target, architecture)
        for who, figures in (("TileLang", theirs), ("tileyard", ours)):
            if figures.failure:
                print(f"{name:20} {who}: {figures.failure}")
        pairs = [(getattr(theirs, head), getattr(ours, head)) for head in heads]
        is_good = not ours.failure and (
            bool(theirs.failure)
            or (ours.spills <= theirs.spills and ours.barriers <= theirs.barriers)
        )
        good += is_good
        cells = "".join(f"{f'{a} {b}':>16}" for a, b in pairs)
        print(f"{name:20}{cells}{'' if is_good else '  worse'}", flush=True)
    return good


def time_configs(architecture: str) -> None:
    """Print how long 24 configs of a GEMM take with both, from the start of the command to its end."""
    for pipeline in ("tilelang", "tileyard"):
        with tempfile.TemporaryDirectory() as home:
            command = [
                *(sys.executable, "-m", "tileyard", "compile", f"{HERE / 'cuda_gemm.py'}::gemm"),
                *(
                    "--all-configs",
                    "--pipeline",
                    pipeline,
                    "--target",
                    f"cuda:{architecture}",
                    "--json",
                ),
            ]
            start = time.perf_counter()
            done = subprocess.run(
                command, env={**os.environ, "TILEYARD_HOME": home}, capture_output=True, check=False
            )
            took = time.perf_counter() - start
            configs = json.loads(done.stdout)["configs"]
            passed = sum(config["outcome"] == "passed" for config in configs)
            print(f"{architecture} {pipeline}: {passed} of {len(configs)} configs in {took:.1f} s")


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="sm_80,sm_90a", metavar="NAME,...")
    parser.add_argument("--kernels", default="", metavar="NAME,...")
    parser.add_argument("--configs", action="store_true", help="time 24 configs of a GEMM, too")
    options = parser.parse_args()
    kernels = find_kernels(import_file(HERE / "pipeline_kernels.py"))
    if options.kernels:
        kernels = {name: kernels[name] for name in options.kernels.split(",")}
    architectures = [name for name in options.arch.split(",") if name in PIPELINES]
    good = sum(compare(kernels, architecture) for architecture in architectures)
    print(f"\nno spill and no barrier more: {good} of {len(kernels) * len(architectures)}")
    for architecture in architectures if options.configs else ():
        time_configs(architecture)


if __name__ == "__main__":
    main()
