"""A look inside a block of small Programs: its steps, the way of an element back, and planted mistakes."""

import dataclasses
import itertools
import random
import re
from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import pytest

from tileyard.base.model import SourceLine, Tolerance
from tileyard.ir.interpret import interpret
from tileyard.ir.nodes import Program
from tileyard.ir.reader import read_program
from tileyard.ir.tiles import Array
from tileyard.ir.verify import verify
from tileyard.look.block_run import BlockRun
from tileyard.look.groups import group_wrong
from tileyard.look.looking import Looker, Others, Subject
from tileyard.look.patterns import Compared
from tileyard.look.records import About, Look
from tileyard.look.repairs import Problem, Seeker
from tileyard.look.shown import pack, with_source_names
from tileyard.look.slices import slice_back
from tileyard.look.ways import describe_way
from tileyard.measure.compare import Expected, compare
from tileyard.verbs.look.view import render_look

PRODUCT = """
def product(A: float32[8, 12], B: float32[12, 8], C: out.float32[8, 8]):
    bx: grid[2]
    by: grid[2]
    threads(32)
    a: shared.float32[4, 4]
    b: shared.float32[4, 4]
    c: fragment.float32[4, 4]

    fill(c, 0.0)
    for k in serial(3):
        copy(A[by * 4 : +4, k * 4 : +4], a)
        copy(B[k * 4 : +4, bx * 4 : +4], b)
        gemm(a, b, c)
    for i, j in parallel(4, 4):
        c[i, j] = c[i, j] * 0.5 + 1.0
    copy(c, C[by * 4 : +4, bx * 4 : +4])
"""
ROWS = """
def rows(X: float32[6, 8], W: float32[8], Y: out.float32[6, 8]):
    bx: grid[3]
    threads(32)
    x: fragment.float32[2, 8]
    most: fragment.float32[2]
    total: fragment.float32[2]

    copy(X[bx * 2 : +2, :], x)
    reduce(x, most, kind="max", axis=1)
    for i, j in parallel(2, 8):
        x[i, j] = exp(x[i, j] - most[i])
    reduce(x, total, kind="sum", axis=1)
    for i_1, j_1 in parallel(2, 8):
        x[i_1, j_1] = x[i_1, j_1] / total[i_1] + W[j_1] * 3.0
    copy(x, Y[bx * 2 : +2, :])
"""
SCAN = """
def scan(X: float32[16], Y: out.float32[16]):
    bx: grid[2]
    threads(32)
    sum: local.float32[1]

    fill(sum, 0.0)
    for n in serial(8):
        if n % 2 == 0 and n < 6:
            sum[0] = sum[0] + X[bx * 8 + n]
        else:
            sum[0] = sum[0] - X[bx * 8 + n] * 2.0
        Y[bx * 8 + n] = sum[0]
"""
PIPELINE = """
def pipeline(X: float32[16], Y: out.float32[16]):
    threads(32)
    x: shared.float32[2, 4]

    with issue("cp_async"):
        copy(X[0 : +4], x[0, :])
    commit_group(unit="cp_async")
    for k in serial(4):
        if k < 3:
            with issue("cp_async"):
                copy(X[(k + 1) * 4 : +4], x[(k + 1) % 2, :])
            commit_group(unit="cp_async")
            wait_group(1, unit="cp_async")
        else:
            wait_group(0, unit="cp_async")
        for i in parallel(4):
            Y[k * 4 + i] = x[k % 2, i] * 2.0
"""
ROLES = """
def roles(X: float32[12], Y: out.float32[12]):
    threads(64)
    x: shared.float32[2, 4]
    full: barrier[1, 1]
    free: barrier[32, 32]

    init_barrier(full)
    init_barrier(free)
    with roles:
        with role(0, 32):
            for k in serial(3):
                wait_barrier(free[k % 2], (k // 2 + 1) % 2)
                arrive(full[k % 2], count=0, bytes=16)
                with issue("tma", full[k % 2]):
                    copy(X[k * 4 : +4], x[k % 2, :])
                arrive(full[k % 2])
        with role(32, 64):
            for j in serial(3):
                wait_barrier(full[j % 2], j // 2 % 2)
                copy(x[j % 2, :], Y[j * 4 : +4])
                arrive(free[j % 2], count=32)
"""
SPLIT = """
def split(A: float32[4, 12], C: inout.float32[4]):
    bx: grid[3]
    threads(32)
    sum: fragment.float32[4]

    fill(sum, 0.0)
    for i in parallel(4):
        for k in serial(4):
            sum[i] = sum[i] + A[i, bx * 4 + k] * 2.0
    for j in parallel(4):
        atomic_add(C[j], sum[j])
"""
NORM = """
def norm(X: float32[8, 16], Y: out.float32[8, 16]):
    bx: grid[2]
    threads(32)
    x: fragment.float32[4, 16]
    s: fragment.float32[4, 16]
    total: fragment.float32[4]
    squares: fragment.float32[4]

    copy(X[bx * 4 : +4, :], x)
    reduce(x, total, kind="sum", axis=1)
    for i, j in parallel(4, 16):
        x[i, j] = x[i, j] - total[i] / 16.0
    for i_1, j_1 in parallel(4, 16):
        s[i_1, j_1] = x[i_1, j_1] * x[i_1, j_1]
    reduce(s, squares, kind="sum", axis=1)
    for i_2, j_2 in parallel(4, 16):
        x[i_2, j_2] = x[i_2, j_2] * rsqrt(squares[i_2] * 0.0625 + 0.25)
    copy(x, Y[bx * 4 : +4, :])
"""
SCORES = """
def scores(Q: float32[8, 16], K: float32[8, 16], O: out.float32[8, 8]):
    bx: grid[2]
    threads(32)
    q: shared.float32[4, 16]
    k: shared.float32[8, 16]
    w: fragment.float32[4, 8]
    most: fragment.float32[4]
    total: fragment.float32[4]

    copy(Q[bx * 4 : +4, :], q)
    copy(K, k)
    gemm(q, k, w, transpose_b=True, clear=True)
    reduce(w, most, kind="max", axis=1)
    for i, j in parallel(4, 8):
        w[i, j] = exp((w[i, j] - most[i]) * 0.25)
    reduce(w, total, kind="sum", axis=1)
    for i_1, j_1 in parallel(4, 8):
        w[i_1, j_1] = w[i_1, j_1] / total[i_1]
    copy(w, O[bx * 4 : +4, :])
"""
STATE = """
def state(K: float32[12, 4], V: float32[12, 8], G: float32[12], S: out.float32[4, 8]):
    bx: grid[2]
    threads(32)
    k: shared.float32[4, 4]
    v: shared.float32[4, 4]
    g: fragment.float32[4]
    h: fragment.float32[4]
    s: fragment.float32[4, 4]

    fill(s, 0.0)
    for c in serial(3):
        copy(K[c * 4 : +4, :], k)
        copy(V[c * 4 : +4, bx * 4 : +4], v)
        copy(G[c * 4 : +4], g)
        for i in parallel(4):
            h[i] = exp(g[i] * 0.25)
        for i_1, j in parallel(4, 4):
            s[i_1, j] = s[i_1, j] * h[i_1]
        gemm(k, v, s, transpose_a=True)
    copy(s, S[:, bx * 4 : +4])
"""
SCALING = """        for i_1, j in parallel(4, 4):
            s[i_1, j] = s[i_1, j] * h[i_1]
"""
MISSING = {
    "1/N of a mean": (NORM, " / 16.0"),
    "the scale of scores": (SCORES, " * 0.25"),
    "the sum of weights": (SCORES, " / total[i_1]"),
    "a summand": (PRODUCT, " + 1.0"),
}
"""What may be missing: the right text, and the part of it that the wrong one does not have."""
TEXTS = {"split": SPLIT, "product": PRODUCT, "rows": ROWS, "scan": SCAN, "pipeline": PIPELINE}
NUMBER_OF_MISTAKES = 5
"""Mistakes that are planted in each Program."""
MOST_NAMED = 3
"""Most lines that a verdict names."""


def arrays_of(program: Program, seed: int = 3) -> list[Array]:
    """Random inputs."""
    draw = np.random.default_rng(seed)
    shapes = [
        tuple(int(one.value) for one in param.buffer.shape)
        for param in program.params
        if param.role != "out"
    ]
    return [draw.standard_normal(shape).astype(np.float32) for shape in shapes]


def subject_of(text: str, right: str, tolerance: Tolerance | None = None) -> Subject:
    """A Program whose results should be those of another one. The statement's number is its line."""
    program, meant = read_program(text), read_program(right)
    verify(program)
    arrays = arrays_of(meant)

    def refer(given: list[Array]) -> list[Array]:
        return interpret(meant, given)

    return Subject(
        program=program,
        lines=lines_of(text),
        arrays=arrays,
        expected=[Expected(one, "float32", tolerance) for one in refer(arrays)],
        refer=refer,
        numbers={"N": arrays[0].shape[-1]},
    )


def look(text: str, right: str, tolerance: Tolerance | None = None) -> Look:
    """What is found in the block with the first wrong element, without a limit."""
    return Looker(subject_of(text, right, tolerance), lambda: 0.0).look()


def body_lines(text: str) -> list[int]:
    """The places in the text of the statements' lines, an ``else`` left out."""
    lines = text.split("\n")
    first = lines.index("", 1) + 1
    return [at for at in range(first, len(lines)) if lines[at].strip() not in ("", "else:")]


def variables_of(line: str) -> str:
    """The variables of a loop; empty for another statement."""
    found = re.match(r" *for (.*) in ", line)
    return found[1] if found else ""


def lines_of(text: str) -> dict[int, SourceLine]:
    """The line of each statement: a loop over two variables is two of them."""
    lines = text.split("\n")
    each = (at for at in body_lines(text) for _ in range(1 + variables_of(lines[at]).count(",")))
    return {number: SourceLine(file="k.py", line=at) for number, at in enumerate(each)}


def plant(text: str, draw: random.Random) -> tuple[str, int] | None:
    """The text with one operator, index, number or buffer changed, and the line."""
    lines = text.split("\n")
    places = body_lines(text)
    at = draw.choice(places)
    line = lines[at]
    kinds = (
        (r"(?<= )[-+*/](?= )", lambda found: draw.choice("+-*/".replace(found, ""))),
        (r"(?<= )(<|==)(?= )", lambda found: draw.choice(["<=", "!=", ">"])),
        (r"\b(and)\b", lambda found: "or"),
        (r"\bexp\b", lambda found: draw.choice(["exp2", "abs"])),
        (r'(?<=kind=")\w+', lambda found: draw.choice(["min", "max", "sum"])),
        (r"\b\d+\.\d+", lambda found: repr(float(found) + draw.choice([0.25, 1.0, -0.5]))),
        (r"(?<![\w.+])\d+(?![\w.])", lambda found: str(int(found) + draw.choice([1, -1, 2]))),
        (
            r"\b(bx|by|k|n|i|j|i_1|j_1)\b",
            lambda found: draw.choice(["bx", "k", "i", "j", "i_1", "j_1"]),
        ),
        (
            r"\b(a|b|c|x|most|total)\b(?=\[|,|\))",
            lambda found: draw.choice(["a", "b", "c", "most", "total"]),
        ),
    )
    pattern, other = draw.choice(kinds)
    found = list(re.finditer(pattern, line))
    if not found:
        return None
    spot = draw.choice(found)
    new = other(spot[0])
    if new == spot[0]:
        return None
    lines[at] = line[: spot.start()] + new + line[spot.end() :]
    return "\n".join(lines), at


def mistakes(name: str) -> Iterator[tuple[str, int]]:
    """Planted mistakes that change results and are valid Programs, each once."""
    draw = random.Random(name)
    seen: set[str] = set()
    right = interpret(read_program(TEXTS[name]), arrays_of(read_program(TEXTS[name])))
    while len(seen) < NUMBER_OF_MISTAKES:
        planted = plant(TEXTS[name], draw)
        if planted is None or planted[0] in seen:
            continue
        try:
            program = read_program(planted[0])
            verify(program)
            got = interpret(program, arrays_of(program))
        except Exception:  # noqa: BLE001 - not a Program, or one that fails
            continue
        expected = [Expected(one, "float32", None) for one in right]
        everywhere = [np.arange(one.size) for one in right]
        if any(
            one.find_wrong(places, array.reshape(-1)).any()
            for one, places, array in zip(expected, everywhere, got, strict=True)
        ):
            seen.add(planted[0])
            yield planted


@pytest.mark.parametrize("name", TEXTS)
def test_a_right_block_has_no_suspects(name: str) -> None:
    """A block whose results are those of the reference has none, and its steps are complete."""
    found = look(TEXTS[name], TEXTS[name])
    assert found.verdict.suspects == ()
    assert found.verdict.sentence == "No element of this block is wrong."
    assert not any(one.wrong for one in found.outputs)


@pytest.mark.parametrize("name", TEXTS)
def test_planted_mistakes_are_named_or_nothing_is(name: str) -> None:
    """The changed statement is named, with few others, or the verdict says that it was not found."""
    alone = 0
    for text, line in mistakes(name):
        verdict = look(text, TEXTS[name]).verdict
        if not verdict.suspects:
            assert "the wrong statement was not found among" in verdict.sentence
            assert any("none makes all results right" in one for one in verdict.limits)
            continue
        assert line in verdict.lines, (text, verdict)
        assert len(verdict.lines) <= MOST_NAMED, (text, verdict)
        alone += len(verdict.lines) == 1
    assert alone >= NUMBER_OF_MISTAKES / 3


@pytest.mark.parametrize("case", MISSING)
def test_what_is_missing_is_found_with_its_number(case: str) -> None:
    """A factor, divisor or summand that a statement does not have; the statement as it should be is shown."""
    right, part = MISSING[case]
    line = next(at for at, text in enumerate(right.split("\n")) if part in text)
    found = look(right.replace(part, ""), right).verdict
    (suspect,) = [one for one in found.suspects if one.line == line]
    expected = right.split("\n")[line].strip().replace("/ 16.0", "* 0.0625")
    assert suspect.after.replace("(", "").replace(")", "") == expected.replace("(", "").replace(
        ")", ""
    )


@pytest.mark.parametrize("op", ["* h[i_1]", "/ h[j]"])
def test_a_product_whose_sum_is_not_scaled_is_named(op: str) -> None:
    """With the tile that scales it at each step, by row or column."""
    right = STATE.replace("* h[i_1]", op)
    wrong = STATE.replace(SCALING, "")
    (suspect,) = look(wrong, right).verdict.suspects
    assert suspect.line == wrong.split("\n").index("        gemm(k, v, s, transpose_a=True)")
    assert suspect.after == f"s[i_1, j] = s[i_1, j] {op}, before this statement"


def test_a_number_that_only_fits_the_results_names_no_statement() -> None:
    """It is a hint: 0.73450246 is no size, ratio or number of the Program."""
    found = look(PRODUCT, PRODUCT.replace("* 0.5 + 1.0", "* 0.36725123 + 0.73450246")).verdict
    assert found.suspects == ()
    assert any(one.startswith("All results are right if line 15 has `c[") for one in found.limits)


def test_small_changes_of_all_statements_come_before_larger_ones() -> None:
    """The wrong one may be none of those that took part, as it wrote another tile."""
    line = next(at for at, text in enumerate(NORM.split("\n")) if "x[i_2, j_2] =" in text)
    found = look(NORM.replace("x[i_2, j_2] =", "s[i_2, j_2] ="), NORM).verdict
    assert line in found.lines
    assert len(found.lines) == 2


def test_an_index_is_shown_without_what_does_nothing() -> None:
    """``k``, and not ``k * 1``."""
    found = look(PIPELINE.replace("x[k % 2, i]", "x[(k + 1) % 2, i]"), PIPELINE).verdict
    assert found.suspects[0].after == "Y[k * 4 + i] = x[k % 2, i] * 2.0"


def test_changes_are_not_tried_at_sizes_that_leave_elements_out() -> None:
    """No change could make all results right there: 5 rows are no multiple of 2."""
    few = ROWS.replace("float32[6, 8]", "float32[5, 8]").replace("grid[3]", "grid[2]")
    wrong, less = (
        subject_of(text.replace("total[i_1] + W", "most[i_1] + W"), text) for text in (ROWS, few)
    )
    others = Others(smaller=lambda: [dataclasses.replace(less, sizes="M=5")])
    found = Looker(wrong, lambda: 0.0, others).look().verdict
    assert found.suspects[0].after == "x[i_1, j_1] = x[i_1, j_1] / total[i_1] + W[j_1] * 3.0"
    assert found.sizes == ""


def test_a_sum_in_the_place_of_a_mean_is_described() -> None:
    """The factor in terms of the sizes, and where it may be: after the sum, or before the copy."""
    right = NORM.replace("rsqrt(squares[i_2] * 0.0625 + 0.25)", "0.0625")
    found = look(right.replace(" * 0.0625", " * 1.0"), right).verdict
    assert "The reference is 1/16 of the kernel's value everywhere" in found.sentence
    assert "(checked in all 128 elements); 16 is N." in found.sentence


def test_no_change_is_tried_beyond_the_limit() -> None:
    """The search for a number ends as well, within one body of a changed Program."""
    wrong = SCAN.replace("* 2.0", "* 3.0")
    subject = subject_of(wrong, SCAN)
    asked: list[bool] = []  # each time that the clock is read, whether the limit has passed
    late = 40

    def now() -> float:
        asked.append(len(asked) > late)
        return 0.0

    problem = Problem(
        program=subject.program,
        arrays=subject.arrays,
        expected=subject.expected or (),
        blocks=[(0,), (1,)],
        output="Y",
        place=1,
        is_whole=True,
    )
    number = wrong.split("\n").index("            sum[0] = sum[0] - X[bx * 8 + n] * 3.0")
    (at,) = [number_ for number_, one in subject.lines.items() if one.line == number]
    found = Seeker(problem, now, lambda: len(asked) > late).search([at])
    assert sum(asked) < 8
    assert found.tried < found.total
    assert not found.repairs


FAULTS = {
    "after right elements": ("Y[bx * 8 + n] = sum[0]", "Y[bx * 8 + n] = sum[n // 7]"),
    "after wrong elements": ("Y[bx * 8 + n] = sum[0]", "Y[bx * 8 + n] = sum[n // 3]"),
    "before all elements": ("Y[bx * 8 + n] = sum[0]", "Y[bx * 8 + n] = sum[1]"),
    "in the second block": ("Y[bx * 8 + n] = sum[0]", "Y[bx * 8 + n] = sum[(bx * 8 + n) // 15]"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_change_without_the_fault_repairs_a_kernel_that_fails(case: str) -> None:
    """If all results are right with it; one that only leaves out what fails is no repair."""
    old, new = FAULTS[case]
    (line,) = [at for at, one in enumerate(SCAN.split("\n")) if old in one]
    right = SCAN.replace("float32[1]", "float32[2]") if "wrong" in case else SCAN
    verdict = look(right.replace(old, new), right).verdict
    assert f"line {line} is where a small change makes all results right" in verdict.sentence
    assert [one.line for one in verdict.suspects] == [line, line]
    assert [one.how for one in verdict.suspects] == ["change", "failed"]
    assert verdict.suspects[0].after


def test_a_block_is_shown_after_one_that_fails() -> None:
    """If blocks see what others wrote, what was there before is not known then."""
    text = SPLIT.replace("sum[i] + A", "sum[i + 1 - bx // 2] + A")
    found = Looker(subject_of(text, SPLIT), lambda: 0.0).look((2,))
    assert found.verdict.suspects == ()
    assert "A block before this one fails" in found.notes[-1]


def test_a_kernel_that_fails_and_is_wrong_elsewhere_has_no_repair() -> None:
    """No one change makes all right; the answer is where it fails."""
    text = SCAN.replace("= sum[0]\n", "= sum[n // 7]\n").replace("* 2.0", "* 3.0")
    verdict = look(text, SCAN).verdict
    line = text.split("\n").index("        Y[bx * 8 + n] = sum[n // 7]")
    assert f"see line {line}: sum[1] is outside its shape" in verdict.sentence
    assert "none makes all results right" in verdict.limits[0]


@pytest.mark.parametrize(
    ("share", "change"),
    [
        (0.2, ("else:", "elif n != 3:")),  # both blocks are wrong, in 5 of 8 elements
        (0.2, ("= sum[0]", "= sum[0] + max(float32(bx * 8 + n), 13.0) - 13.0")),
        (
            0.2,
            (
                "        Y[bx * 8 + n] = sum[0]",
                "        if bx + n < 7:\n            Y[bx * 8 + n] = sum[0]",
            ),
        ),
    ],
)
def test_a_share_of_the_output_may_be_wrong_as_in_a_test(
    share: float, change: tuple[str, str]
) -> None:
    """What ``compare`` passes has no wrong element, also if all of the few that may be are in one block."""
    allowed = Tolerance(rtol=1e-4, atol=1e-4, share=share)
    right, text = read_program(SCAN), SCAN.replace(*change)
    assert text != SCAN
    (got,), (want,) = (interpret(one, arrays_of(right)) for one in (read_program(text), right))
    found = look(text, SCAN, allowed)
    is_wrong = compare("Y", got, want, allowed) is not None
    assert bool(found.ways or found.verdict.suspects) == is_wrong
    assert any("elements may be wrong" in one for one in found.notes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: 3 * x, "3 times the kernel's value everywhere (checked in all 24 elements)"),
        (
            lambda x: x / 6,
            "1/6 of the kernel's value everywhere (checked in all 24 elements); 6 is N",
        ),
        (lambda x: x - 0.5, "0.5 less than the kernel's value everywhere"),
        (lambda x: x * [[1], [2], [3], [5]], "between 1 in row 0 and 5 in row 3"),
        (lambda x: x + np.arange(6), "between 0 in column 0 and 5 in column 5"),
        (lambda x: x * x, ""),
        (lambda x: np.where(x == x.max(), 0, x * 2), ""),
    ],
)
def test_how_the_reference_follows_from_the_kernels_values(
    change: Callable[[Array], Array], words: str
) -> None:
    """By one number, or by one for each row or column; no sentence if an element does not fit."""
    got = np.random.default_rng(1).standard_normal((4, 6))
    compared = Compared(
        shape=got.shape,
        places=np.arange(24),
        got=got.reshape(-1),
        expected=Expected(change(got), "float32", None),
    )
    found = compared.describe({"N": 6})
    assert words in found
    assert bool(words) == bool(found)


def test_names_are_those_of_the_source() -> None:
    """A Program numbers what the source names twice; other names with a number stay, and so do buffers."""
    about = About(source=("for i, j in T.Parallel(2, 8):", "    x_1[i, j] = x[i, j] + W[j] * k_2"))
    found = msgspec.structs.replace(look(ROWS, ROWS), about=about)
    texts = [one.text for one in with_source_names(found, ["x", "x_1"]).statements]
    assert "for i, j in parallel(2, 8):" in texts
    assert "x[i, j] = x[i, j] / total[i] + W[j] * 3.0" in texts


def recorded(text: str, block: tuple[int, ...]) -> BlockRun:
    """The record of one block."""
    program = read_program(text)
    run = BlockRun(program, arrays_of(program), block, lambda: False)
    run.record()
    return run


def test_an_element_is_followed_back_to_the_inputs() -> None:
    """Through a product to one row of A and one column of B, in as many steps as K has tiles."""
    found = slice_back(recorded(PRODUCT, (1, 0)).history, "C", 2 * 8 + 5)
    read = {"A": set(), "B": set()}
    for by_buffer in found.inputs.values():
        for buffer, places in by_buffer.items():
            read[buffer] |= set(places.tolist())
    assert read["A"] == {2 * 12 + k for k in range(12)}
    assert read["B"] == {k * 8 + 5 for k in range(12)}
    assert found.unwritten == {}
    assert found.numbers() == [8, 7, 4, 3, 2, 0]


def test_a_copy_arrives_after_it_was_issued() -> None:
    """In between its tile is undefined, and the copy is in flight."""
    run = recorded(PIPELINE, ())
    steps = run.history.steps
    issued = next(step for step in steps if step.kind == "issue")
    landed = next(step for step in steps if step.issued == issued.index)
    assert np.isnan(issued.writes[0].content).all()
    assert np.array_equal(
        landed.writes[0].content.reshape(-1), arrays_of(read_program(PIPELINE))[0][:4]
    )
    assert issued.index < landed.index
    assert [one.groups for one in landed.state.groups] == [(0, 1)]


def test_roles_barriers_and_phases_are_recorded() -> None:
    """Each wait has its own role's text, also if others went on in the meantime."""
    run = recorded(ROLES, ())
    assert not run.hazards
    waits = [(step.role, step.text) for step in run.history.steps if step.text.startswith("wait")]
    assert [text for role, text in waits if role == 1] == [
        "wait free[0] p1",
        "wait free[1] p1",
        "wait free[0] p0",
    ]
    assert [text for role, text in waits if role == 2] == [
        "wait full[0] p0",
        "wait full[1] p0",
        "wait full[0] p1",
    ]
    last = {one.name: one for one in run.history.steps[-1].state.barriers}
    assert (last["full[0]"].phase, last["full[1]"].phase) == (2, 1)
    assert all(one.pending == 0 for one in last.values())


def test_blocks_that_add_to_the_same_element_are_compared_at_the_end() -> None:
    """The one that adds last is shown, after the others; what they added is not wrong."""
    found = look(SPLIT, SPLIT.replace("* 2.0", "* 3.0"))
    assert found.block == (2,)
    assert found.verdict.lines == {
        SPLIT.split("\n").index("            sum[i] = sum[i] + A[i, bx * 4 + k] * 2.0")
    }


def test_a_wait_that_ends_too_early_is_named() -> None:
    """The order of the text gives the right result, so the wait is wrong, and not the arithmetic."""
    wrong = PIPELINE.replace("wait_group(1", "wait_group(2")
    found = look(wrong, PIPELINE)
    line = wrong.split("\n").index('            wait_group(2, unit="cp_async")')
    assert found.verdict.suspects[0].line == line
    assert found.verdict.suspects[0].how == "hazard"


def test_the_influence_of_inputs_is_measured() -> None:
    """Of what the kernel reads, and of what the reference uses and the kernel does not read."""
    wrong = PRODUCT.replace("bx * 4 : +4], b)", "by * 4 : +4], b)")
    (way, *_) = look(wrong, PRODUCT).ways
    assert way.index == (0, 4)
    unread = [one.part for one in way.influences if one.number < 0]
    assert [(one.buffer, one.starts, one.extents) for one in unread] == [("B", (0, 4), (12, 1))]
    of_b = [one for one in way.influences if one.part.buffer == "B" and one.number >= 0]
    assert of_b
    assert all(one.reference == 0 and one.differs for one in of_b)


PARTS = """
def parts(X: float32[8, 8], Y: out.float32[8, 8]):
    threads(32)

    for i, j in parallel(8, 8):
        if i == 3:
            Y[i, j] = X[i, j] * 2.0
        elif j < 2:
            Y[i, j] = X[i, j] + 1.0
        else:
            Y[i, j] = X[i, j]
    Y[7, 7] = X[0, 0] * 4.0
"""


def test_wrong_elements_are_grouped_by_statement_and_region() -> None:
    """One of each group is followed; the page says how many there are. A change may repair one of them."""
    wrong = PARTS.replace("* 2.0", "* 3.0").replace("+ 1.0", "- 1.0").replace("* 4.0", "/ 0.0")
    found = look(wrong, PARTS)
    assert found.groups == 3
    assert [(way.index, way.group) for way in found.ways] == [
        ((0, 0), "14 in a part of Y[0:8, 0:2]"),
        ((3, 0), "8 in Y[3, 0:8]"),
        ((7, 7), "1 in Y[7, 7]"),
    ]
    assert "but one in line 8 makes 14 of 23 wrong elements right" in found.verdict.sentence
    assert [(one.line, one.after) for one in found.verdict.suspects] == [
        (8, "Y[i, j] = X[i, j] + 1.0")
    ]
    text = render_look(found)
    assert "23 wrong, in 3 groups" in text
    assert "23 of 64 of Y" in text
    assert "One element of each is followed." in text


HALVES = """
def halves(X: float32[8], Y: out.float32[8]):
    threads(32)
    x: fragment.float32[8]

    for i in parallel(4):
        x[i] = X[i] * 2.0
    for j in parallel(4):
        x[j + 4] = X[j + 4] * 3.0
    copy(x, Y)
"""


def test_elements_of_one_statement_with_other_statements_behind_them_are_two_groups() -> None:
    """As behind a tile that two loops have filled, of which one is wrong."""
    found = look(HALVES.replace("* 2.0", "* 5.0").replace("* 3.0", "* 7.0"), HALVES)
    assert [(way.index, way.group) for way in found.ways] == [
        ((0,), "some of 8 in Y[0:8]"),
        ((5,), "some of 8 in Y[0:8]"),
    ]


LONG = SCAN.replace("serial(8)", "serial(64)").replace("[16]", "[128]").replace("bx * 8", "bx * 64")


def test_groups_are_not_sampled_beyond_the_limit() -> None:
    """A sample has one element then, and the groups of other statements and regions are still told apart."""
    run = recorded(HALVES.replace("* 2.0", "* 5.0").replace("* 3.0", "* 7.0"), ())
    (values,) = run.outputs().values()
    late = group_wrong(run.history, "Y", np.arange(8), values, lambda: True)
    assert [(one.places.tolist(), one.is_sampled) for one in late] == [(list(range(8)), False)]
    assert len(group_wrong(run.history, "Y", np.arange(8), values, lambda: False)) == 2


def test_long_loops_are_sampled() -> None:
    """The first two iterations and the last one are shown; what the others left is in the next step."""
    found = look(LONG, LONG)
    shown = [dict(step.loops).get("n") for step in found.steps]
    assert [n for n in dict.fromkeys(shown) if n is not None] == [0, 1, 63]
    (resumed,) = [step for step in found.steps if step.skipped]
    assert {part.buffer for part in resumed.before} == {"sum", "Y"}
    assert found.total_steps == 1 + 2 * 64


ENDLESS = """
def endless(X: float32[3, 4], Y: ROLE.float32[3, 4]):
    bx: grid[3]
    threads(32)
    n: local.int32[1]

    fill(n, 0)
    for i in parallel(4):
        Y[bx, i] = X[bx, i] * 2.0START
    while n[0] < 1 and bx == AT:
        n[0] = n[0] * 2
"""


@pytest.mark.parametrize("role", ["out", "inout"])
@pytest.mark.parametrize("factor", [2.0, 3.0])
@pytest.mark.parametrize("at", range(4))
def test_a_kernel_that_does_not_end_is_looked_at(role: str, factor: float, at: int) -> None:
    """Also if only one of its blocks does not, and whether it is wrong before or not; block 3 is none."""
    text = ENDLESS.replace("ROLE", role).replace("START", " + Y[bx, i]" * (role == "inout"))
    right = text.replace("AT", "3").replace("2.0", repr(factor))
    subject, ticks = subject_of(text.replace("AT", str(at)), right), itertools.count()
    looker = Looker(subject, lambda: next(ticks) / 100)
    found = looker.look()
    sentence = found.verdict.sentence
    if at == 3:
        assert ("No element of this block is wrong" in sentence) == (factor == 2.0)
    elif factor == 2.0 or role == "inout":
        assert "Only the first steps of the block could be recorded" in sentence
        assert found.block == (at,)
    else:
        assert "the reference has" in sentence
    assert looker.look((2,)).block == (2,)


def test_without_a_reference_nothing_is_called_right() -> None:
    """The sentence says that nothing was compared, also beside a finding."""
    subject = dataclasses.replace(subject_of(ROWS, ROWS), expected=None, refer=None)
    sentence = Looker(subject, lambda: 0.0).look().verdict.sentence
    assert sentence == "No element of this block was compared with a reference."


def test_contents_beyond_the_limit_are_lost_by_element() -> None:
    """What a shown step writes is known, also after steps whose contents were not kept."""
    program = read_program(LONG)
    run = BlockRun(program, arrays_of(program), (0,), lambda: False)
    run.most_bytes = 0
    run.record()
    *_, resumed, last = pack(program, run.history, ["Y"]).steps
    assert resumed.skipped
    assert [(part.content, part.value) for part in resumed.before] == [(-1, ""), (-1, "")]
    (part,) = last.writes
    assert (part.buffer, part.starts) == ("Y", (63,))
    assert float(part.value) == pytest.approx(float(run.outputs()["Y"][63]))
    way = describe_way(run.history, slice_back(run.history, "Y", 63))
    assert {visit.is_kept for part in way for visit in part.visits} == {True, False}
