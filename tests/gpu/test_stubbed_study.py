"""``tileyard tune --from`` on two declared GPUs whose driver library is stubbed: nothing runs on a GPU."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from tests.e2e.bare_host import make_bare, run_bare
from tests.gpu.bare_kernels import publish_bare
from tests.gpu.conftest import stubbed

from tileyard.artifacts.arrays import put_array
from tileyard.artifacts.bundle_file import Reference
from tileyard.artifacts.bundles import Packing, write_bundle
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.model import GoldenKey, KernelWork
from tileyard.verbs.test.plan.packed import pack_suite
from tileyard.verbs.test.result.result import Suite, SuiteCase
from tileyard.workers.protocol import Golden, RunEntry

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("cuda") is None, reason="cuda-bindings is not installed"
    ),
]
DEVICE = '[[device]]\nname = "cuda:{0}"\nid = "stub-{0}"\nidentity = "stub"\n'
TARGET = "cuda:sm_90a"


def pack(folder: Path, bare: Path) -> Path:
    """A bundle of two kernels as configs of one; it asks for no driver, since there is none."""
    objects = ObjectStore(folder / "objects")
    inputs = {"scale": ((1000,), (0.5, 1)), "mapped": ((1000, 64), ())}
    cases, entries = [], {}
    for name, (shape, scalars) in inputs.items():
        work = KernelWork(kernel="bare", config={"how": name})
        cases.append(SuiteCase(testcase="bare", name=name, work=work))
        given = put_array(objects, np.ones(shape, np.float32))
        entries[f"bare/{name}"] = RunEntry(
            case=name,
            build=publish_bare(name, "sm_90a", bare / f"{name}-sm_90a.cubin", objects),
            golden=Golden(key=GoldenKey(""), inputs=(given,), outputs=()),
            specs=(),
            scalars=scalars,
            log="",
        )
    (folder / "suite").mkdir()
    suite = Suite(name="bare", path="", folder=str(folder / "suite"), cases=tuple(cases))
    packing = Packing(
        target=TARGET,
        records=tuple(Reference(kind="build", key=entry.build) for entry in entries.values()),
        is_complete=True,
    )
    text = pack_suite(suite, entries, dict.fromkeys(entries, TARGET), objects)
    write_bundle(packing, objects, folder / "space.tyb", text)
    return folder / "space.tyb"


def test_a_space_for_gpus_is_tuned_on_all_of_them(stub: Path, bare: Path, tmp_path: Path) -> None:
    """Driver stubbed: with neither TileLang nor a compiler, by captured graphs, up to the finals."""
    host = make_bare(tmp_path / "there")
    host.home.mkdir()
    (host.home / "devices.toml").write_text("".join(DEVICE.format(number) for number in (0, 1)))
    driver = stubbed(stub, tmp_path / "driver.log", {})
    for name in ("LD_LIBRARY_PATH", "STUB_CUDA_LOG"):
        host.env[name] = driver[name]
    space = str(pack(tmp_path, bare))
    asked = ("tune", "--from", space, "--graph", "--devices", "cuda", "--json")
    study = json.loads(run_bare(host, *asked))
    assert [trial["outcome"] for trial in study["trials"]] == ["unchecked", "unchecked"]
    assert {trial["device"] for trial in study["trials"]} <= {"cuda:0", "cuda:1"}
    assert (study["target"], study["silicon"]) == (TARGET, "stub")
    assert study["best"]["config"]["how"] in {"scale", "mapped"}
    assert "captured" in (tmp_path / "driver.log").read_text()
