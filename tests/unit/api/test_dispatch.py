"""Tuned kernels: which config or binary runs, and the error where there is none."""

# ruff: noqa: N803 - sizes and arrays are called M and A

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest

import tileyard
from tileyard.api import dispatch
from tileyard.api.dispatch import Dispatch
from tileyard.artifacts.manifest import Manifest, publish
from tileyard.artifacts.objects import ObjectStore
from tileyard.base.errors import RejectedError, TileyardError
from tileyard.base.model import BuildKey, TensorSpec
from tileyard.base.settings import Settings
from tileyard.store.choices import Choice, add_choices

CHOICE = Choice(
    kernel="gemm",
    arguments={"M": 64},
    target="cpu",
    silicon="one",
    config={"block": 16},
    tensors=(TensorSpec(name="A", dtype="float32", shape=(64,), role="in"),),
    latency_ns=10.0,
    file="a.py",
    build=BuildKey("a" * 40),
)
OTHER = msgspec.structs.replace(CHOICE, file="b.py", build=BuildKey("b" * 40))


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    """Asks a home with two kernels of a name, one of which has its binary, for the build that would run."""
    add_choices(tmp_path, [CHOICE, OTHER])
    manifest = Manifest(
        kernel="gemm",
        target="cpu",
        fingerprint="",
        build=CHOICE.build,
        binary="",
        files={},
        details="{}",
    )
    publish(manifest, ObjectStore(tmp_path / "objects"))
    made = lambda artifact, *_: cast(Any, lambda *_: artifact.manifest.build)  # noqa: E731 - short
    monkeypatch.setattr(dispatch, "make_callable", made)
    settings = Settings(home=tmp_path, lock_dir=tmp_path, cores=(0,))

    def call(name: str, silicon: str) -> str:
        return str(Dispatch(name, settings, silicon=silicon)(np.ones(64, np.float32)))

    return call


def test_a_name_runs_the_binary_that_won(named: Callable[[str, str], str]) -> None:
    """Of the file that is named with it."""
    assert named("a.py::gemm", "one") == CHOICE.build


@pytest.mark.parametrize(
    ("name", "silicon", "says"),
    [
        ("gemm", "one", "several kernels are called gemm: a.py::gemm and b.py::gemm"),
        ("b.py::gemm", "one", "the binary of gemm that won is not in "),
        ("gemm", "two", r"no config of gemm is known for .* on two .*what won on one\)"),
        ("conv", "one", r"no config of conv is known for .* on one \(tune it for that shape\)"),
    ],
)
def test_what_cannot_run_is_said(
    named: Callable[[str, str], str], name: str, silicon: str, says: str
) -> None:
    """Two kernels of one name, a binary that is gone, another silicon, and a name that nobody knows."""
    with pytest.raises(TileyardError, match=says):
        named(name, silicon)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ((np.ones(64, np.float16),), "array 0 is float16, but gemm was tuned for float32"),
        ((np.ones(64), np.ones(64)), r"gemm takes 1 input array \(A\), not 2 arrays"),
        (([1.0],), r"gemm takes 1 input array \(A\), not 0 arrays"),
    ],
)
def test_what_differs_is_named(
    named: Callable[[str, str], str], tmp_path: Path, arrays: tuple[object, ...], says: str
) -> None:
    """A dtype or a number of arrays that no study has seen is not called an unknown shape."""
    with pytest.raises(TileyardError, match=says):
        Dispatch(
            "a.py::gemm", Settings(home=tmp_path, lock_dir=tmp_path, cores=(0,)), silicon="one"
        )(*arrays)


def test_no_config_that_where_rejects_is_chosen(tmp_path: Path) -> None:
    """Neither the default nor a recorded or imported one, if the kernel's rule rejects it for the shape."""

    @tileyard.kernel(space={"block": [16, 32]}, where=lambda M, block: M % block == 0)
    def gemm(M: int, block: int = 16) -> None:
        pass

    wrong = msgspec.structs.replace(CHOICE, file="", config={"block": 48})
    add_choices(tmp_path, [wrong])
    tuned = tileyard.tuned(
        gemm,
        silicon="one",
        default={"block": 32},
        arguments=lambda A: {"M": len(A)},
        home=str(tmp_path),
    )
    assert tuned.choose(np.ones(160, np.float32)) == ({"M": 160}, {"block": 32})
    for size, block in ((80, 32), (64, 48)):
        with pytest.raises(
            RejectedError, match=rf"where of gemm rejects block={block} for M={size}"
        ) as refused:
            tuned(np.ones(size, np.float32))
        assert refused.value.__context__ is None


def divide(M: int) -> dict[str, list[int]]:
    """A space that depends on the size."""
    return {"block": [block for block in (8, 16, 24, 32, 64) if M % block == 0]}


@pytest.mark.parametrize("rule", ["constraint", "function", "space"])
def test_an_unseen_shape_has_the_config_of_the_nearest_one(tmp_path: Path, rule: str) -> None:
    """The nearest of those whose config is valid for it; else the default, or a refusal."""
    blocks = {"block": [8, 16, 24, 32, 64]}
    wheres = {"constraint": "M % block == 0", "function": lambda M, block: M % block == 0}

    @tileyard.kernel(space=divide if rule == "space" else blocks, where=wheres.get(rule))  # type: ignore[arg-type]
    def gemm(M: int, block: int = 16) -> None:
        pass

    usual = {"silicon": "one", "home": str(tmp_path)}
    tuned = tileyard.tuned(gemm, **usual)
    with pytest.raises(TileyardError, match="no config of gemm is known for"):
        tuned.choose(np.ones(96, np.float32))
    for size, block in ((64, 64), (256, 32), (48, 24)):
        spec = msgspec.structs.replace(CHOICE.tensors[0], shape=(size,))
        arguments, config = {"M": size}, {"block": block}
        won = msgspec.structs.replace(
            CHOICE, file="", arguments=arguments, config=config, tensors=(spec,)
        )
        add_choices(
            tmp_path, [won, msgspec.structs.replace(won, silicon="two", config={"block": 16})]
        )
    spec = msgspec.structs.replace(CHOICE.tensors[0], shape=(136,))
    stale = {"arguments": {"M": 136}, "config": {"block": 8, "stages": 2}, "tensors": (spec,)}
    add_choices(tmp_path, [msgspec.structs.replace(CHOICE, file="", **stale)])
    expected = {64: 64, 128: 64, 160: 32, 96: 24, 72: 24, 1024: 32}
    for size, block in expected.items():
        assert tuned.choose(np.ones(size, np.float32)) == ({"M": size}, {"block": block}), size
    assert tuned.explain(np.ones(1024, np.float32)) == (
        "gemm M=1024 runs with block=32, which won for M=256, the nearest tuned shape"
    )
    passed_over = tuned.explain(np.ones(96, np.float32))
    assert passed_over.endswith(" M=48, the nearest tuned shape whose config is valid")
    assert tuned.explain(np.ones(64, np.float32)).endswith("block=64, which won for this shape")
    refused = np.ones(40, np.float32)
    with pytest.raises(TileyardError, match=r"known for float32\[40\] on one"):
        tuned.choose(refused)
    with pytest.raises(TileyardError, match="array 0 is float16, but gemm was tuned for float32"):
        tuned.choose(np.ones(128, np.float16))
    with pytest.raises(TileyardError, match=r"known for float32\[128\] on one"):
        tileyard.tuned(gemm, nearest=False, **usual).choose(np.ones(128, np.float32))
    fixed = tileyard.tuned(gemm, default={"block": 8}, **usual)
    assert fixed.choose(np.ones(128, np.float32))[1] == {"block": 64}
    assert fixed.explain(refused) == "gemm M=40 runs with block=8, the default"


def test_a_name_has_no_default(tmp_path: Path) -> None:
    """Nothing could build it."""
    settings = Settings(home=tmp_path, lock_dir=tmp_path, cores=(0,))
    with pytest.raises(TileyardError, match="default has no effect on a kernel by its name"):
        Dispatch("gemm", settings, default={"block": 16})
