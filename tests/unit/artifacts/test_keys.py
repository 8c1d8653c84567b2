"""Identities follow from content alone, and from all of it."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileyard.artifacts.keys import (
    build_key,
    canonical_json,
    digest_bytes,
    digest_chunks,
    digest_parts,
    measurement_key,
    paired_key,
    run_key,
)
from tileyard.base.model import (
    BuildKey,
    CheckPolicy,
    GoldenKey,
    Kernel,
    RunKey,
    TimingPolicy,
    Tolerance,
)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.binary(max_size=20), max_size=5))
def test_digest_does_not_see_how_a_blob_is_cut(chunks: list[bytes]) -> None:
    """The digest of chunks is that of the whole."""
    expected = digest_bytes(b"".join(chunks))

    assert digest_chunks(chunks) == expected


TEXTS = st.lists(st.text("ab1:", max_size=3), max_size=3)


@settings(deadline=None, max_examples=60)
@given(TEXTS, TEXTS)
def test_digest_of_parts_keeps_their_borders(one: list[str], other: list[str]) -> None:
    """Two sequences of texts have the same digest only where they are the same sequence."""
    expected = one == other

    assert (digest_parts(*one) == digest_parts(*other)) is expected


def test_canonical_json_ignores_the_order_of_keys() -> None:
    """Equal dicts give equal text, however they were filled."""
    expected = '{"a":1,"b":2}'

    assert canonical_json({"b": 2, "a": 1}) == expected


KERNEL = Kernel(name="gemm", program="program", tir="", pass_options={})


@pytest.mark.parametrize(
    "other",
    [
        build_key(msgspec.structs.replace(KERNEL, program="else"), "cpu", "gcc 12", {"O": 3}),
        build_key(KERNEL, "sim", "gcc 12", {"O": 3}),
        build_key(KERNEL, "cpu", "gcc 13", {"O": 3}),
        build_key(KERNEL, "cpu", "gcc 12", {"O": 2}),
    ],
    ids=["program", "target", "fingerprint", "options"],
)
def test_build_key_covers_all_that_a_compiler_reads(other: BuildKey) -> None:
    """A change to the Program, the target, its fingerprint or an option is another build."""
    key = build_key(KERNEL, "cpu", "gcc 12", {"O": 3})

    assert key != other


def test_build_key_of_a_program_ignores_the_name_of_the_kernel() -> None:
    """Identical Programs are built once, whatever they are called."""
    expected = build_key(KERNEL, "cpu", "gcc", {})

    assert build_key(msgspec.structs.replace(KERNEL, name="mm"), "cpu", "gcc", {}) == expected


def test_build_key_of_tir_covers_pass_options() -> None:
    """Options of TileLang's passes change code only where TIR is what gets compiled."""
    tir = Kernel(name="k", tir="{}", pass_options={"a": 1})

    assert build_key(tir, "cuda", "f", {}) != build_key(
        msgspec.structs.replace(tir, pass_options={"a": 2}), "cuda", "f", {}
    )


def test_run_key_covers_the_check() -> None:
    """Another tolerance may give another outcome."""
    loose = CheckPolicy(tolerance=Tolerance(rtol=1.0, atol=1.0))

    assert run_key(BuildKey("b"), GoldenKey("g"), CheckPolicy()) != run_key(
        BuildKey("b"), GoldenKey("g"), loose
    )


def test_measurement_key_ignores_the_group() -> None:
    """A group decides when sampling is abandoned, not what a time means."""
    expected = measurement_key(RunKey("r"), "cpu", TimingPolicy(group="one"))

    assert measurement_key(RunKey("r"), "cpu", TimingPolicy(group="two")) == expected


def test_paired_key_covers_the_field() -> None:
    """Who else was timed in turn is part of an interleaved time."""
    first = paired_key(RunKey("a"), [RunKey("b")], "cpu", "20")
    second = paired_key(RunKey("a"), [RunKey("c")], "cpu", "20")

    assert first != second
