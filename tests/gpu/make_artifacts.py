"""``make gpu-artifacts``: builds what ``make gpu-check`` runs, where TileLang is and no GPU need be.

``python -m tests.gpu.make_artifacts FOLDER ARCHITECTURE...`` writes, for each kernel and architecture, the
cubin and its details, and for each kernel its inputs and what its reference made of them; and for each
architecture the bundle of a space of configs.
"""

import functools
import gzip
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import tilelang
from tests.gpu.check_plan import CHECKS, Check

from tileyard.base.model import Elaborated
from tileyard.frontend.tilelang import make_kernel
from tileyard.frontend.written_again import write_again
from tileyard.ir.nodes import Scalar
from tileyard.ir.specs import tensor_specs
from tileyard.passes.pipeline import PIPELINES
from tileyard.targets.base import Source
from tileyard.targets.cuda.launching import CUBIN_FILE, Details
from tileyard.targets.cuda.target import CudaTarget

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
STEPS = 32
"""Inputs are multiples of one part in so many."""


def main(folder: Path, *architectures: str) -> int:
    """Build all, and say which could not be built."""
    sources = {name: lower_check(check) for name, check in CHECKS.items() if not check.beside}
    signatures: dict[str, str] = {}
    failed = 0
    for architecture in architectures:
        known = PIPELINES.keys() & {architecture}
        ours = {n: lower_check(c, architecture) for n, c in CHECKS.items() if c.beside and known}
        everything = {**sources, **ours}
        wanted = {n: s for n, s in everything.items() if architecture not in CHECKS[n].not_for}
        here = folder / architecture
        here.mkdir(parents=True, exist_ok=True)
        built = build(wanted, architecture, here)
        signatures |= built
        failed += pack_space(architecture, here / "space.tyb")
        failed += len(wanted) - len(built)
        sys.stdout.write(f"{len(built)} of {len(wanted)} kernels for {architecture}\n")
    plan = {
        name: write_inputs(folder, name, CHECKS[name], signatures[name])
        for name in CHECKS
        if name in signatures
    }
    (folder / "plan.json").write_text(json.dumps(plan, indent=1))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    sys.stdout.write(f"{size / 2**20:.1f} MiB in {folder}\n")
    return 1 if failed else 0


def pack_space(architecture: str, bundle: Path) -> int:
    """Build a few configs of the GEMM for ``tileyard tune --from``; 1 if they could not be."""
    configs = ("block_M=64,128", "block_N=64,128", "block_K=32,64")
    options = [word for config in configs for word in ("--config", config)]
    options += [word for size in "MNK" for word in ("--arg", f"{size}=256")]
    kernel = str(ROOT / "examples" / "gemm.py")
    command = [sys.executable, "-m", "tileyard", "compile", kernel, *options, "-o", str(bundle)]
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "TILEYARD_HOME": home}
        target = ("--target", f"cuda:{architecture}")
        return int(subprocess.run([*command, *target], env=env, check=False).returncode != 0)


def lower_check(check: Check, pipeline: str = "") -> Source:
    """A kernel as the target is given it, behind a pipeline of ours if one is named."""
    function = getattr(load_module(check.file), check.kernel)
    function = getattr(function, "jit_impl", function)
    outputs = getattr(function, "out_idx", [-1])
    outputs = [outputs] if isinstance(outputs, int) else outputs
    arguments = dict(check.arguments)
    if "policy" in arguments:
        arguments["policy"] = getattr(tilelang.language.GemmWarpPolicy, arguments["policy"])
    function = getattr(function, "get_tir", function)
    func, options = function(**arguments), {}
    if pipeline:
        again = write_again(func, pipeline, outputs, check.kernel, {})
        func, options = again.func, again.options
    made = make_kernel(func, outputs, with_tir=True)
    kernel = msgspec.structs.replace(made.kernel, pass_options=options)
    return Source(elaborated=Elaborated(kernel=kernel, tir=made.tir))


def build(sources: Mapping[str, Source], architecture: str, here: Path) -> dict[str, str]:
    """Put cubins and details into a folder; the details of those that could be built."""
    target = CudaTarget(architecture)
    built = {}
    with tempfile.TemporaryDirectory() as place:
        target.caches = Path(place) / "caches"
        builds = target.build(list(sources.values()), Path(place))
        for number, (name, one) in enumerate(zip(sources, builds, strict=True)):
            if not one.details:
                reason = one.diagnostic.message if one.diagnostic else one.outcome
                sys.stdout.write(f"{name} was not built for {architecture}: {reason}\n")
                continue
            built[name] = one.details
            (here / f"{name}.json").write_text(one.details)
            cubin = (Path(place) / str(number) / CUBIN_FILE).read_bytes()
            (here / f"{name}.cubin.gz").write_bytes(gzip.compress(cubin, mtime=0))
    return built


@functools.cache
def load_module(file: str) -> ModuleType:
    """A file of kernels, by its name."""
    path = HERE.parent / "kernels" / f"{file}.py"
    spec = importlib.util.spec_from_file_location(f"checked_{file}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write_inputs(folder: Path, name: str, check: Check, manifest: str) -> Mapping[str, object]:
    """Inputs and expected outputs as one file, and the rest as plain data."""
    signature = msgspec.json.decode(manifest, type=Details).launch.signature
    scalars = [param.var.name for param in signature.params if isinstance(param, Scalar)]
    numbers = dict(zip(scalars, check.scalars, strict=True))
    integers = {key: one for key, one in numbers.items() if isinstance(one, int)}
    specs = tensor_specs(signature, {**check.dims, **integers})
    generator = np.random.default_rng(len(check.beside or name))
    given = {spec.name: make_input(generator, spec) for spec in specs if spec.role != "out"}
    written = [spec.name for spec in specs if spec.role != "in"]
    arrays = {f"in_{key}": value for key, value in given.items()}
    if check.expect is not None:
        found = check.expect(load_module(check.file), *given.values(), *check.scalars)
        found = found if isinstance(found, tuple) else (found,)
        arrays |= {f"out_{key}": value for key, value in zip(written, found, strict=True)}
    if not check.beside:  # else they are in the file of the kernel that it is beside
        np.savez_compressed(folder / f"{name}.npz", **arrays)
    return {
        "inputs": list(given),
        "outputs": written,
        "scalars": list(check.scalars),
        "rtol": check.rtol,
        "atol": check.atol,
        "like": check.like,
        "beside": check.beside,
        "fault": check.fault,
        "reads_old": check.reads_old and not given.keys() & set(written),
    }


def make_input(generator: np.random.Generator, spec: Any) -> Any:  # noqa: ANN401
    """Numbers around 0, or small whole ones. Few of them are different, so that files are small."""
    if "int" in spec.dtype:
        return generator.integers(1, 100, spec.shape).astype(spec.dtype)
    return (np.rint(generator.standard_normal(spec.shape) * STEPS) / STEPS).astype(spec.dtype)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
