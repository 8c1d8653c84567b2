"""The C that is generated: what it leaves out, what it calls things, what it keeps."""

import pytest

from tileyard.base.errors import UnsupportedError
from tileyard.ir.reader import read_program
from tileyard.targets.cpu.emit import keeping
from tileyard.targets.cpu.emit.context import Writer
from tileyard.targets.cpu.emit.program import Generated, generate
from tileyard.targets.cpu.machine import Machine

AVX2 = Machine(arch="x86_64", vector_bytes=32, registers=16)
AVX512 = Machine(arch="x86_64", vector_bytes=64, registers=32)


def emit(text: str, machine: Machine = AVX2) -> Generated:
    """The C of a Program's text."""
    return generate(read_program(text), machine, {})


def gemm(m: int | str, roles: str = "", grid: tuple[int, int] = (2, 4)) -> str:
    """A gemm over a grid of tiles of 32, with ``m`` rows."""
    dim = "    m: dim\n" if isinstance(m, str) else ""
    return f"""
def matmul(A: {roles}float32[{m}, 64], B: float32[64, 64], C: out.float32[{m}, 64]):
{dim}    bx: grid[{grid[0]}]
    by: grid[{grid[1]}]
    threads(128)
    A_shared: shared.float32[32, 16]
    B_shared: shared.float32[16, 32]
    C_local: fragment.float32[32, 32]
    fill(C_local, 0.0)
    for k in pipelined(4, stages=2):
        copy(A[by * 32 : +32, k * 16 : +16], A_shared)
        copy(B[k * 16 : +16, bx * 32 : +32], B_shared)
        gemm(A_shared, B_shared, C_local)
    copy(C_local, C[by * 32 : +32, bx * 32 : +32])
"""


def test_bounds_that_are_certain_are_not_tested() -> None:
    """With constant sizes that the tiles divide, no access is guarded."""
    text = emit(gemm(128)).text
    body = text[text.index("ty_kernel") :]
    expected = 0
    assert body.count("ty_inside") + body.count(" ? ") == expected


def test_open_bounds_are_tested_once_for_a_tile() -> None:
    """With open sizes a whole tile's test chooses between moving rows and single elements."""
    text = emit(gemm("m")).text
    expected = 2
    assert text.count("if (by * 32 + 31 < m)") == expected
    assert " < m ? A[" in text
    cleared = gemm("m").replace(
        "copy(C_local, C[by * 32 : +32, bx * 32 : +32])", "fill(C[by * 32 : +32, :], 0.0)"
    )
    assert emit(cleared).text.count("if (by * 32 + 31 < m)") == expected


def test_names_are_the_users() -> None:
    """Buffers, loops and the grid keep their names; each tile operation stands in a comment."""
    text = emit(gemm(128)).text
    expected = (
        "C_local)[",
        "for (int32_t k = 0; k < 4; ++k)",
        "const int32_t by",
        "/* 2: copy(A[by * 32 : +32, k * 16 : +16], A_shared) */",
        "/* 4: gemm(A_shared, B_shared, C_local) */",
    )
    assert [part for part in expected if part not in text] == []


def test_names_that_c_has_already_are_changed() -> None:
    """A buffer may be called what C, the runtime or the generator call something of theirs."""
    text = emit("""
def double(int_: float32[4], scratch: out.float32[4], ty_exp_f32: out.float32[4]):
    register: local.float32[4]
    for main in parallel(4):
        register[main] = int_[main]
        scratch[main] = register[main]
        ty_exp_f32[main] = exp(int_[main])
""").text
    expected = ("float register_1[4]", "scratch_1[main_1]", "user_ty_exp_f32[main_1]")
    assert [part for part in expected if part not in text] == []


def test_micro_kernels_fit_the_registers() -> None:
    """Register blocks are shaped by the machine: 6 x 16 with 16 registers, 8 x 32 with 32."""
    expected = ("micro_6x16", "micro_8x32")
    wide = gemm(128).replace("[32, 32]", "[32, 64]").replace("bx * 32 : +32", "bx * 0 : +64")
    wide = wide.replace("[16, 32]", "[16, 64]")
    assert expected[0] in emit(gemm(128)).text
    assert expected[1] in emit(wide, AVX512).text


def test_clearing_is_left_to_the_gemm() -> None:
    """An accumulator that is cleared before its gemm is not set to zero in memory."""
    text = emit(gemm(128)).text
    expected = "C_local_is_clear = 1;"
    assert expected in text
    assert text.index(expected) < text.index("memset(C_local")


CLEARED = """
def early(A: float32[8, 8], C: out.float32[8, 8]):
    a: shared.float32[8, 8]
    c: fragment.float32[8, 8]
    copy(A, a)
    fill(c, 0.0)
    gemm(a, a, c)
    copy(c, C)
"""


def test_a_deep_gemm_is_clear_at_its_first_steps_only() -> None:
    """Parts of k, which fit the cache one by one, are added to those before."""
    deep = CLEARED.replace("a: shared.float32[8, 8]", "a: shared.float32[8, 2048]")
    deep = deep.replace("A: float32[8, 8]", "A: float32[8, 2048]")
    expected = "is_clear_ = k_ == 0 && c_is_clear;"
    assert expected in emit(deep.replace("gemm(a, a, c)", "gemm(a, a, c, transpose_b=True)")).text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    copy(c, C)", "    if c[0, 0] > 1.0:\n        gemm(a, a, c)\n    copy(c, C)"),
        ("    fill(c, 0.0)", "    fill(c, -0.0)"),
        ("    fill(c, 0.0)", "    fill(c[0 : +4, :], 0.0)"),
        ("    gemm(a, a, c)", "    gemm(a[0 : +4, :], a, c[0 : +4, :])"),
        ("    copy(A, a)", "    d: fragment.float32[64] = c\n    copy(A, a)"),
        ("float32", "int32"),
        (
            "    fill(c, 0.0)\n    gemm(a, a, c)",
            "    with roles:\n        with role(0, 32):\n            fill(c, 0.0)\n            gemm(a, a, c)",
        ),
    ],
)
def test_what_may_be_seen_is_cleared_at_once(before: str, after: str) -> None:
    """Where not every read is seen, or no micro-kernel writes all of the tile, clearing is not put off."""
    expected = "c_is_clear"
    assert expected in emit(CLEARED).text
    assert f"if ({expected})" not in emit(CLEARED).text
    text = CLEARED.replace(before, after)
    text = text.replace("0.0", "0") if after == "int32" else text
    assert expected not in emit(text).text


@pytest.mark.parametrize(
    "reader",
    [
        "gemm(c, a, e)",
        "gemm(a, c, e)",
        "copy(c, e)",
        "for i, j in parallel(8, 8):\n        e[i, j] = c[i, j]",
    ],
)
def test_a_tile_that_only_counts_as_clear_is_cleared_before_it_is_read(reader: str) -> None:
    """Once: afterwards it no longer counts as clear."""
    text = f"{CLEARED}    fill(c, 0.0)\n    {reader}\n    copy(e, C)\n"
    text = text.replace(
        "    copy(A, a)", "    e: fragment.float32[8, 8]\n    fill(e, 1.0)\n    copy(A, a)"
    )
    lines = [line.strip() for line in emit(text).text.splitlines()]
    place = lines.index("if (c_is_clear) {")
    assert lines[place + 1].startswith("memset(c, 0, ")
    assert lines[place + 2] == "c_is_clear = 0;"
    assert place > lines.index("c_is_clear = 0;", lines.index("c_is_clear = 1;"))


def test_tiles_are_kept_for_other_blocks() -> None:
    """A tile of an array that is only read is copied once for all blocks that need it."""
    text = emit(gemm(128)).text
    expected = ("ty_claim(&A_shared_claims[slot_])", "ty_claim(&B_shared_claims[slot_])")
    assert [part for part in expected if part not in text] == []


def test_large_right_operands_are_kept_past_the_caches() -> None:
    """Other threads hear of one that was written so when it is in memory; small ones are written as usual."""
    expected = "TY_SETTLE();\n          ty_publish(&B_shared_claims[slot_]);"
    small = Machine(arch="x86_64", vector_bytes=32, registers=16, l2_bytes=4 << 10)
    assert expected in emit(gemm(128), small).text
    assert "ty_put(&B_shared" in emit(gemm(128), small).text
    assert "ty_put" not in emit(gemm(128)).text


def test_rows_that_lie_apart_are_fetched_before_they_are_written() -> None:
    """A block of an array is; whole rows, which follow each other, are not."""
    expected = "if (!C_is_large) ty_fetch(&C[by * 32 + i_1 + 2][bx * 32], 128);"
    assert expected in emit(gemm(128)).text
    assert (
        "ty_fetch"
        not in emit(gemm(128).replace("C: out.float32[128, 64]", "C: out.float32[128, 32]")).text
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (gemm(128, roles="inout."), "the array is written"),
        (gemm(128, grid=(1, 4)), "no two blocks need the same"),
        (
            gemm(128)
            .replace("A_shared: shared.float32[", "A_shared: shared.float32[1, ")
            .replace(", A_shared)", ", A_shared[0, :, :])")
            .replace("gemm(A_shared", "gemm(A_shared[0, :, :]"),
            "the tile has stages",
        ),
        (
            gemm(128)
            .replace("    A_shared:", "    at: local.int32[1]\n    A_shared:")
            .replace("    fill(", "    at[0] = 32\n    fill(")
            .replace("k * 16 : +16], A_shared", "at[0] : +16], A_shared"),
            "a place that is read may have changed",
        ),
        (
            gemm(128).replace(
                "    fill(",
                "    with roles:\n        with role(0, 32):\n            pass\n    fill(",
            ),
            "roles take turns",
        ),
    ],
)
def test_tiles_are_not_kept_in_vain(text: str, reason: str) -> None:
    """Tiles of arrays that change, or that one block alone needs, are copied each time."""
    expected = "A_shared_claims"
    assert expected not in emit(text).text, reason


def test_a_tile_with_two_writers_is_not_kept() -> None:
    """What else is written into the tile would be lost with the next block's copy."""
    text = gemm(128).replace(
        "        gemm(", "        if k == 2:\n            fill(A_shared, 0.0)\n        gemm("
    )
    expected = "A_shared_claims"
    assert expected not in emit(text).text


def test_integers_wrap_where_they_may() -> None:
    """Sums that can leave their type are not left to C, others are."""
    text = emit("""
def sums(X: int32[64], Y: out.int32[64]):
    for i in parallel(64):
        Y[i] = X[i] + 1 if i + 1 < 64 else 0
""").text
    expected = ("ty_add_i32(X[i], 1)", "i + 1 < 64")
    assert [part for part in expected if part not in text] == []


def test_independent_iterations_are_announced() -> None:
    """The compiler is told of independence only where the indices show it."""
    apart = emit("""
def apart(X: float32[8, 64], Y: inout.float32[8, 64]):
    for i, j in parallel(8, 64):
        Y[i, j] = Y[i, j] + X[i, 63 - j]
""").text
    together = emit("""
def together(X: float32[8, 64], Y: inout.float32[8, 64]):
    for i, j in parallel(8, 64):
        Y[i, 0] = Y[i, 0] + X[i, j]
""").text
    expected = (True, False)
    assert ("TY_INDEPENDENT" in apart, "TY_INDEPENDENT" in together) == expected


def test_faults_are_numbered_from_one() -> None:
    """Each failure that a kernel can have has a description, its statement, and what was wrong there."""
    found = emit("""
def faults(X: int32[4], Y: out.int32[4]):
    t: local.int32[4]
    for i in serial(4):
        t[X[i]] = 7 // X[i]
        Y[i] = t[X[i]]
""")
    outside = "an index of t is outside its shape [4]"
    expected = {
        ("an integer is divided by zero", 1, ""),
        (outside, 1, "X[i]"),
        (outside, 2, "X[i]"),
    }
    assert {
        (fault.message, fault.statement, fault.value) for fault in found.details.faults
    } == expected
    assert "&fault, 1)" in found.text
    assert "&fault, 2)" in found.text


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("copy(A[0 : +4, :], t)", "have different shapes"),
        ("reduce(t, u, kind='bitor', axis=1)", "bitor of floats"),
        ("gemm(t, t, t)", "gemm of t into itself"),
    ],
)
def test_what_is_not_covered_is_refused(body: str, expected: str) -> None:
    """Whatever the generator has no right answer for is refused by name."""
    text = f"""
def refused(A: float32[8, 8], C: out.float32[8, 8]):
    t: shared.float32[8, 8]
    u: fragment.float32[8]
    {body}
    copy(t, C)
"""
    with pytest.raises(UnsupportedError, match=expected):
        emit(text)


@pytest.mark.parametrize(
    "body",
    [
        "copy(A, t)\n    copy(v, D)",
        "for i in parallel(4):\n        v[i, 0] = 1.0\n    copy(v, D)",
        "for k in serial(2):\n        copy(v, D)\n        copy(A, t)\n        fill(v, 0.0)\n"
        "        copy(A, t)",
        "copy(A, t)\n    if A[0, 0] > float16(0.0):\n        fill(v, 1.0)\n    copy(t, C)",
        "copy(A, t)\n    for i, j in parallel(4, 8):\n        v[i, j] = float32(t[i, j])\n    copy(v, D)",
    ],
)
def test_a_tile_read_as_another_type_than_it_was_written_is_refused(body: str) -> None:
    """Only what is always written as what it is read as has memory of its own."""
    text = f"""
def mixed(A: float16[8, 8], C: out.float16[8, 8], D: out.float32[4, 8]):
    t: shared.float16[8, 8]
    v: shared.float32[4, 8] = t
    {body}
"""
    with pytest.raises(UnsupportedError, match="view v of t as float32"):
        emit(text)


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (0, (False, False, False, False)),
        (20 << 10, (True, False, False, False)),
        (38 << 10, (True, True, False, True)),
        (52 << 10, (True, True, False, False)),
        (1 << 20, (True, True, True, False)),
    ],
)
def test_what_is_kept_fits_the_memory(
    memory: int, expected: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing, rows by each thread, some columns too, all columns, or all contents for all threads."""
    monkeypatch.setattr(keeping, "MOST_BYTES", memory)
    text = emit(gemm(128, grid=(4, 4))).text
    parts = ("A_shared_claims", "B_shared_claims", "ty_claim", "width_")
    found = tuple(part in text for part in parts)
    assert found == expected


def test_slots_are_numbered_from_the_start_of_a_loop() -> None:
    """Wherever it starts, its first content is in the first slot."""
    text = emit(gemm(128).replace("pipelined(4, ", "pipelined(3, start=1, ")).text
    expected = ("const int64_t slot_ = by * INT64_C(3) + (k - 1);", "12 of them for all threads")
    assert [part for part in expected if part not in text] == []


def test_columns_are_kept_in_groups_of_like_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five, four would fit: three are kept and then two. A slot's content is numbered among all."""
    monkeypatch.setattr(keeping, "MOST_BYTES", 52 << 10)
    text = emit(
        gemm(128, grid=(5, 4)).replace("64]", "160]").replace("[128, 160], B", "[128, 64], B")
    ).text
    expected = (
        "width_ = 5 - left_ < 3 ? 5 - left_ : 3;",
        "slot_ = bx % 3 * INT64_C(4) + k;",
        "content_ = bx * INT64_C(4) + k + INT64_C(1);",
    )
    assert [part for part in expected if part not in text] == []


def test_a_loop_of_a_length_that_varies_keeps_what_it_needs_at_most() -> None:
    """Slots are counted by the largest that a loop's length can be."""
    text = emit(
        gemm(128).replace("for k in pipelined(4, stages=2)", "for k in pipelined(bx + 1, stages=2)")
    ).text
    expected = "8 of them for all threads"
    assert expected in text


WHOLE_NUMBERS = (
    gemm(128)
    .replace("float32", "int8")
    .replace("C_local: fragment.int8", "C_local: fragment.int32")
    .replace("out.int8", "out.int32")
    .replace("fill(C_local, 0.0)", "fill(C_local, 0)")
)


def test_whole_numbers_that_only_gemms_read_are_kept_as_floats() -> None:
    """Conversion is part of the copy, which is made once for all blocks, and no gemm converts again."""
    text = emit(WHOLE_NUMBERS).text
    expected = ("float *A_shared", "ty_claim(&A_shared_claims[slot_])")
    assert [part for part in expected if part not in text] == []
    assert "staged" not in text


@pytest.mark.parametrize(
    "body",
    [
        "        A_shared[0, 0] = cast(1, int8)\n        gemm(",
        "        fill(A_shared, 1)\n        gemm(",
    ],
)
def test_whole_numbers_that_something_else_writes_stay_what_they_are(body: str) -> None:
    """Only copies from the same type are sure to put numbers into a tile that floats hold."""
    text = emit(WHOLE_NUMBERS.replace("        gemm(", body)).text
    expected = "int8_t (*restrict A_shared)"
    assert expected in text


def test_a_block_that_is_all_of_another_is_written_once() -> None:
    """Braces that hold nothing but braces are left out; what stands beside something else keeps its own."""
    out = Writer()
    with out.block("if (a)"), out.block(""), out.block(""):
        out.line("x();")
    with out.block(""):
        with out.block(""):
            out.line("y();")
        out.line("z();")
    expected = "if (a) {\n  x();\n}\n{\n  {\n    y();\n  }\n  z();\n}\n"
    assert out.text() == expected
