"""A process whose driver library is stubbed: loads artifacts, and says on stdout what became of it.

``python stub_client.py FOLDER SCENE ARGUMENTS...``. Nothing is run on a GPU: the library writes down
what it was told to.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

from tileyard.base.errors import TileyardError
from tileyard.base.model import TensorSpec, TimingPolicy
from tileyard.ir.nodes import Scalar
from tileyard.targets.base import Array
from tileyard.targets.cuda.callable import DeviceArray
from tileyard.targets.cuda.driver import open_gpu
from tileyard.targets.cuda.launching import Details
from tileyard.targets.cuda.loaded import CudaLaunch, CudaLoaded

HEAVY = (
    "tilelang",
    "torch",
    "elftools",
    "scipy",
    "rich",
    "sqlalchemy",
    "typer",
    "zstandard",
    "psutil",
)


def load(folder: Path, name: str) -> CudaLoaded:
    """An artifact of the folder, such as ``scale-sm_90a``."""
    details = msgspec.json.decode((folder / f"{name}.json").read_bytes(), type=Details)
    return CudaLoaded(open_gpu(0), details, (folder / f"{name}.cubin").read_bytes())


def fixed(*shape: int) -> Array:
    """An array that nobody can write."""
    array: Array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    array.setflags(write=False)
    return array


def bind(folder: Path, name: str) -> CudaLaunch:
    """One of the kernels, for a thousand rows or elements."""
    loaded = load(folder, name)
    if name.startswith("scale"):
        return loaded.bind([fixed(1000)], [0.5, -3])
    return loaded.bind([fixed(1000, 64)], [])


def once(folder: Path, name: str) -> object:
    """Bind, run and read."""
    launch = bind(folder, name)
    launch.run()
    (found,) = launch.read()
    heavy = [module for module in HEAVY if module in sys.modules]
    return {"poisoned": bool(np.isnan(found).all()), "shape": found.shape, "heavy": heavy}


def sticky(folder: Path, name: str) -> object:
    """Run what fails, then anything else."""
    said = []
    for _ in range(2):
        try:
            bind(folder, name).run()
        except TileyardError as error:
            said.append([type(error).__name__, error.message])
    return said


def uploads(folder: Path, name: str) -> object:
    """The same array for three launches, then one that may change for two."""
    loaded = load(folder, name)
    array = fixed(1000)
    kept = [loaded.bind([array], [1.0, 1]) for _ in range(3)]
    changing = np.array(array)
    kept += [loaded.bind([changing], [1.0, 1]) for _ in range(2)]
    return len(kept)


def times(folder: Path, name: str, how: str) -> object:
    """Two samples of 130 launches."""
    launch = bind(folder, name)
    launch.time_by(TimingPolicy(flush_l2="flush" in how, graph="graph" in how))
    return len(launch.sample_ns(2, 130))


class Capsuled:
    """An array that speaks DLPack, as a NumPy array does that lies on a GPU."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        """The first GPU."""
        return (2, 0)

    def __dlpack__(self, stream: int) -> object:
        """NumPy's own capsule."""
        self.streams.append(stream)
        return self.array.__dlpack__()


def interface(shape: tuple[int, ...], **changes: object) -> Any:  # noqa: ANN401
    """An array of a framework that is not known here."""
    own = DeviceArray(open_gpu(0), TensorSpec(name="x", dtype="float32", shape=shape, role="in"), 0)
    stated = {**own.__cuda_array_interface__, "stream": None, **changes}
    return SimpleNamespace(__cuda_array_interface__=stated, keep=own)


def call(folder: Path, name: str) -> object:
    """The callable, with arrays of several kinds."""
    open_gpu(0).activate()
    kernel = load(folder, name).as_callable()
    made: Any = kernel(interface((1000, 64)))
    capsuled = Capsuled(np.zeros((1000, 64), np.float32))
    a, b = interface((1000, 64), stream=77), interface((1000, 64))
    results = [kernel(a, b), kernel(a, b), kernel(capsuled, b)]
    stated = made.__cuda_array_interface__
    return {
        "shape": stated["shape"],
        "typestr": stated["typestr"],
        "results": results,
        "streams": capsuled.streams,
    }


def aims(folder: Path, name: str) -> object:
    """The callable with arrays at other addresses, one of which it does not take."""
    open_gpu(0).activate()
    kernel = load(folder, name).as_callable()
    a, b, c = (interface((1000, 64)) for _ in range(3))
    crooked = interface((1000, 64), data=(c.__cuda_array_interface__["data"][0] + 4, False))
    said = []
    for arguments in ((a, b), (c, b), (a, crooked), (c, b)):
        try:
            kernel(*arguments)
        except TileyardError as error:
            said.append(error.message)
    return {"a": a.keep.address, "b": b.keep.address, "c": c.keep.address, "said": said}


def refusals(folder: Path, name: str) -> object:
    """What the callable does not take."""
    open_gpu(0).activate()
    kernel = load(folder, name).as_callable()
    good = interface((1000, 64))
    address = good.__cuda_array_interface__["data"][0]
    strided = interface((1000, 64), strides=(4, 4000))
    bad: list[tuple[object, ...]] = [
        (good, good),
        (interface((1000, 64), typestr="<f2"),),
        (interface((1000, 32)),),
        (strided,),
        (interface((1000, 64), data=(address + 4, False)),),
        (np.zeros((1000, 64), np.float32).tolist(),),
        (good, good, good),
    ]
    said = []
    for arguments in bad:
        try:
            kernel(*arguments)
        except TileyardError as error:
            said.append(error.message)
    return said


def everything(folder: Path) -> object:
    """Every artifact of the folder, each with its own numbers: bound and run once, by name."""
    numbers = json.loads((folder / "numbers.json").read_text())
    for name in sorted(numbers):
        loaded = load(folder, name)
        specs = loaded.specs_for(numbers[name])
        arrays = [np.zeros(one.shape, one.dtype) for one in specs if one.role != "out"]
        params = [one.var.name for one in loaded.signature.params if isinstance(one, Scalar)]
        launch = loaded.bind(arrays, [numbers[name][param] for param in params])
        launch.run()
        written = [one for one in specs if one.role != "in"]
        assert [(a.shape, a.dtype) for a in launch.read()] == [(s.shape, s.dtype) for s in written]
    return len(numbers)


SCENES: dict[str, Callable[..., object]] = {
    scene.__name__: scene
    for scene in (once, sticky, uploads, times, call, aims, refusals, everything)
}


def main(folder: str, scene: str, *arguments: str) -> None:
    """Say what became of a scene, or in which words it was refused."""
    try:
        found = SCENES[scene](Path(folder), *arguments)
    except (TileyardError, MemoryError) as error:
        found = {"refused": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
