"""One kernel of ``make gpu-check``, in a process of its own: its last line on stdout is JSON.

``python check_child.py FOLDER NAME ["stubbed"]``; the name ``about`` asks for the device alone.
"""

import gzip
import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tileyard.base.errors import TileyardError
from tileyard.base.model import TimingPolicy
from tileyard.targets.cuda.architectures import parse_architecture
from tileyard.targets.cuda.driver import open_gpu
from tileyard.targets.cuda.launching import Details
from tileyard.targets.cuda.loaded import CudaLaunch, CudaLoaded

SAMPLES, LAUNCHES, CALLS = 21, 64, 256
"""So few calls find room in the device's queue: the host does not wait, and its own time is measured."""


def main(folder: Path, name: str, how: str) -> dict[str, Any]:
    """What became of it."""
    gpu = open_gpu(0)
    fitting = [
        one.name
        for one in sorted(folder.iterdir())
        if one.is_dir() and parse_architecture(one.name).fits(gpu.capability)
    ]
    if name == "about":
        version = gpu.driver.version
        cuda = f"{version // 1000}.{version % 1000 // 10}"
        about = {"name": gpu.name, "capability": gpu.capability, "cuda": cuda}
        return {**about, "fitting": fitting}
    built = [one for one in fitting if (folder / one / f"{name}.cubin.gz").exists()]
    if not built:
        return {"skipped": "it was not built for this architecture"}
    here = folder / built[-1] / name
    details = msgspec.json.decode(here.with_suffix(".json").read_bytes(), type=Details)
    loaded = CudaLoaded(gpu, details, gzip.decompress(here.with_suffix(".cubin.gz").read_bytes()))
    plan = json.loads((folder / "plan.json").read_text())[name]
    with np.load(folder / f"{plan.get('beside') or name}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    return {"arch": built[-1], **run(loaded, plan, arrays, is_stubbed=how == "stubbed")}


def run(
    loaded: CudaLoaded, plan: dict[str, Any], arrays: dict[str, Any], *, is_stubbed: bool
) -> dict[str, Any]:
    """Run, compare, time."""
    launch = loaded.bind([arrays[f"in_{name}"] for name in plan["inputs"]], plan["scalars"])
    launch.run()
    outputs = dict(zip(plan["outputs"], launch.read(), strict=True))
    for name, got in outputs.items():
        if not is_stubbed and f"out_{name}" in arrays:
            message = compare(name, got, arrays[f"out_{name}"], plan)
            if message:
                return {"error": message}
    message = run_again(launch, plan, outputs)
    if message and not is_stubbed:
        return {"error": message}
    found: dict[str, Any] = {}
    for field, policy in (
        ("launch_ns", TimingPolicy()),
        ("ns", TimingPolicy(graph=True)),
        ("cold_ns", TimingPolicy(flush_l2=True, graph=True)),
    ):
        launch.time_by(policy)
        launch.sample_ns(3, LAUNCHES)
        found[field] = float(np.median(launch.sample_ns(SAMPLES, LAUNCHES)))
    if plan["like"] and not is_stubbed:
        found |= beside_torch(loaded, plan, arrays)
    return found


def run_again(launch: CudaLaunch, plan: dict[str, Any], outputs: dict[str, Any]) -> str:
    """What is wrong in runs over other content in the outputs: only a kernel that reads them may differ."""
    differences = []
    for inverted in (False, True):
        launch.run_again(inverted=inverted)
        again = zip(outputs.items(), launch.read(), strict=True)
        differences += [compare(name, got, want, plan) for (name, want), got in again]
    difference = next(filter(None, differences), "")
    if plan["reads_old"]:
        return "" if difference else "a second run does not show that it reads its old output"
    return difference and f"over other content: {difference}"


def compare(name: str, got: Any, want: Any, plan: dict[str, Any]) -> str:  # noqa: ANN401
    """Where an output is wrong, empty for nowhere."""
    exact = not np.issubdtype(want.dtype, np.floating)
    tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {k: plan[k] for k in ("rtol", "atol")}
    right = np.isclose(got.astype(np.float64), want.astype(np.float64), **tolerance, equal_nan=True)
    if right.all():
        return ""
    place = tuple(int(one) for one in np.argwhere(~right)[0])
    return (
        f"mismatch: {name}{list(place)} is {got[place]}, expected {want[place]}; "
        f"{int((~right).sum())} are wrong"
    )


def beside_torch(
    loaded: CudaLoaded, plan: dict[str, Any], arrays: dict[str, Any]
) -> dict[str, Any]:
    """What torch takes for the same, and what our callable takes of the host for a launch."""
    import torch

    tensors = [torch.from_numpy(arrays[f"in_{name}"]).cuda() for name in plan["inputs"]]

    def attend(*qkv: Any) -> Any:  # noqa: ANN401
        heads_first = [one.transpose(1, 2) for one in qkv]
        return torch.nn.functional.scaled_dot_product_attention(*heads_first).transpose(1, 2)

    theirs = {
        "matmul": torch.matmul,
        "add": torch.add,
        "softmax": lambda x: torch.softmax(x, dim=1),
        "attention": attend,
    }[plan["like"]]
    ours = loaded.as_callable()
    got, want = ours(*tensors, *plan["scalars"]), theirs(*tensors)
    torch.cuda.synchronize()
    message = compare("callable", got.cpu().numpy(), want.cpu().numpy(), plan)  # type: ignore[attr-defined]
    if message:
        return {"error": message}
    out = torch.empty_like(want).contiguous()
    ours(*tensors, *plan["scalars"], out)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(CALLS):
        ours(*tensors, *plan["scalars"], out)
    overhead_us = (time.perf_counter() - began) / CALLS * 1e6
    torch.cuda.synchronize()
    return {"torch_ns": time_graph(torch, lambda: theirs(*tensors)), "overhead_us": overhead_us}


def time_graph(torch: Any, work: Any) -> float:  # noqa: ANN401
    """Nanoseconds of one call of torch's, captured and replayed as ours are."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            work()
    samples = []
    for _ in range(SAMPLES):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end) * 1e6 / LAUNCHES)
    return float(np.median(samples))


def say(gpu_found: dict[str, Any]) -> None:
    """The answer."""
    sys.stdout.write(f"{json.dumps(gpu_found)}\n")


if __name__ == "__main__":
    try:
        say(main(Path(sys.argv[1]), sys.argv[2], (sys.argv[3:] or [""])[0]))
    except TileyardError as error:
        say({"refused" if sys.argv[2] == "about" else "error": str(error)})
    except MemoryError as error:
        say({"error": f"out_of_memory: {error}"})
