"""Builds and loads Programs, makes arguments for them and compares their results, for tests of targets."""

from pathlib import Path

import ml_dtypes
import numpy as np

from tileyard.artifacts.manifest import Artifact, Build, Manifest
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import BuildKey, Device, Elaborated, Kernel, Outcome, Value
from tileyard.ir.dtypes import find_dtype
from tileyard.ir.nodes import Program
from tileyard.ir.specs import scalar_params
from tileyard.ir.text import print_program
from tileyard.targets.base import Array, Loaded, Source, Target
from tileyard.testing.target_cases import TargetCase, random_array, random_arrays


def make_source(program: Program, name: str = "kernel") -> Source:
    """The Source of a Program without source lines."""
    kernel = Kernel(name=name, program=print_program(program))
    return Source(elaborated=Elaborated(kernel=kernel))


def store_artifact(target: Target, build: Build, folder: Path) -> Artifact:
    """The artifact that ``build`` wrote into ``folder/0``, in a separate store."""
    objects = ObjectStore(folder / "objects")
    files = {name: objects.put_file(folder / "0" / name) for name in build.files}
    manifest = Manifest(
        kernel="kernel",
        target=target.name,
        fingerprint=target.fingerprint(),
        build=BuildKey("key"),
        binary=build.binary,
        files=files,
        details=build.details,
    )
    return Artifact(manifest, objects)


def load_program(target: Target, device: Device, program: Program, folder: Path) -> Loaded:
    """Build and load ``program``."""
    (build,) = target.build([make_source(program)], folder)
    assert build.outcome is Outcome.PASSED, build
    return target.load(store_artifact(target, build, folder), device)


def explain_difference(got: Array, want: Array, case: TargetCase) -> str:
    """How ``got`` differs from ``want`` by more than ``case`` allows; empty if it does not."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{got.dtype}{got.shape} is not {want.dtype}{want.shape}"
    if want.dtype.kind in "iub":
        wrong = got != want
    else:
        eps, tiny = _limits(want.dtype)
        a, b = got.astype(np.float64), want.astype(np.float64)
        with np.errstate(all="ignore"):
            finite = np.abs(b[np.isfinite(b)])
            allowed = case.rtol * finite.max(initial=0.0)
            allowed = allowed + case.ulps * eps * np.maximum(np.abs(b), tiny)
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            wrong = ~(same | (np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= allowed)))
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} differ, at {at}: {got[at]} is not {want[at]}"


def _limits(dtype: "np.dtype[np.generic]") -> tuple[float, float]:
    """The distance from 1 to the next number, and the smallest normal number."""
    limits = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return float(limits.eps), float(limits.smallest_normal)


def random_arguments(program: Program, seed: int) -> tuple[list[Array], list[Value]]:
    """Arrays and scalars for a Program without dimensions."""
    rng = np.random.default_rng(seed)
    arrays = random_arrays(rng, program, {})
    scalars: list[Value] = []
    for var in scalar_params(program):
        number = random_array(rng, var.dtype, (1,))[0]
        scalars.append(float(number) if find_dtype(var.dtype).is_float else int(number))
    return arrays, scalars
