"""ARM's dot-product units, emulated: the C of gemms, cross-compiled, beside exact sums."""

import itertools
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.samples import IS_WHOLE
from tests.unit.targets.test_cpu_units import (
    BYTES,
    CHOICES,
    FLIPS,
    SPECIAL,
    check_special,
    check_sums,
    draw_arrays,
    draw_special,
    draw_tiny,
    write_gemm,
)

from tileyard.ir.reader import read_program
from tileyard.targets.base import Array
from tileyard.targets.cpu.emit.program import Generated, generate
from tileyard.targets.cpu.machine import Machine
from tileyard.targets.cpu.target import HEADERS, header_text
from tileyard.targets.cpu.toolchain import CpuOptions, Toolchain, open_toolchain

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64-static"
MISSING = [name for name in (COMPILER, EMULATOR) if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"there is no {' and no '.join(MISSING)}")

Choice = tuple[str, str, tuple[bool, bool], tuple[int, int, int]]
SUMS, WHOLE = (
    [one for one in CHOICES if (one[0] in BYTES) == is_whole] for is_whole in (False, True)
)
SMALL: list[Choice] = [("bfloat16", "bfloat16", flips, (17, 18, 35)) for flips in FLIPS]
STEP = 1 if IS_WHOLE else 5  # no divisor of the number of pairs of types, or of sizes
KERNELS: dict[str, tuple[list[Choice], tuple[str, ...]]] = {
    "sums": (SUMS if IS_WHOLE else SUMS[::5] + SUMS[2::5], ("bf16",)),
    "small": (SMALL, ("bf16",)),
    "wrong": (SMALL[:1], ("bf16",)),
    "exchanged": (WHOLE[:1], ("i8",)),
    "all": (WHOLE[::STEP], ("i8", "s8", "u8")),
    "mixed": (WHOLE[1 % STEP :: STEP], ("i8",)),
    "same": (WHOLE[2 % STEP :: STEP], ("s8", "u8")),
}
"""Gemms of each kernel, and the units of its machine."""
WRONG = {
    "wrong": """#undef TY_DOT_BF16
#define TY_DOT_BF16(c, a, b) TY_NEON("bfdot", "8h", c, a, a)
""",
    "exchanged": """#undef TY_DOT_I8
#define TY_DOT_I8(c, a, b) TY_NEON("usdot", "16b", c, b, a)
""",
}
"""Units that give wrong answers."""

LINE = 64
MAIN = """
#include "runtime.c"
#include <stdio.h>
KERNELS
static const struct {
  ty_kernel_fn kernel;
  int64_t scratch, shared, claims, tags, count, arrays[128];
} launches[] = {LAUNCHES};
static char data[SIZE] __attribute__((aligned(64)));
int main(void) {
  if (fread(data, 1, sizeof data, stdin) != sizeof data)
    return 2;
  __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)1 << 24)); /* as a caller that takes small numbers for 0 */
  ty_pool *pool = ty_pool_open(1, (const int32_t[]){0}, 0);
  for (size_t n = 0; n < sizeof launches / sizeof *launches; ++n) {
    void *buffers[129];
    ty_report report = {0};
    for (int64_t i = 0; i < launches[n].count; ++i)
      buffers[i] = data + launches[n].arrays[i];
    buffers[launches[n].count] = &report;
    ty_call call = {launches[n].kernel, buffers, NULL, (const int64_t[]){1}, 1, launches[n].claims,
                    launches[n].tags};
    if (ty_pool_reserve(pool, launches[n].scratch, launches[n].shared) || ty_launch(pool, &call))
      return 3;
  }
  return fwrite(data, 1, sizeof data, stdout) != sizeof data;
}
"""
"""Launches kernels one after another, on arrays from its input, and writes all arrays."""


def emit(name: str, machine: Machine) -> Generated:
    """One kernel that computes all of its gemms."""
    choices, units = KERNELS[name]
    params, head, body = list[str](), list[str](), list[str]()
    for number, (a, b, flips, sizes) in enumerate(choices):
        text = write_gemm(a, b, "int32" if a in BYTES else "float32", flips, sizes)
        text = re.sub(r"\b([ABCxyzi])\b", rf"\g<1>{number}", text)
        first, _, *lines = text.strip().splitlines()
        params.append(first.removeprefix("def gemm(").removesuffix("):"))
        head += [line for line in lines if re.search(": (shared|fragment)", line)]
        body += [line for line in lines if line not in head]
    lines = [f"def gemm({', '.join(params)}):", "    threads(128)", *head, *body]
    machine = msgspec.structs.replace(machine, units=dict.fromkeys(units, "an emulator"))
    return generate(read_program("\n".join(lines)), machine, {})


def write_kernel(name: str, kernel: Generated) -> str:
    """A kernel's C with other names of its functions; the process ends with a list of trusted units."""
    units = re.findall(r"TY_ASK_(\w+)", kernel.text)
    trusts = " ".join(
        f'dprintf(2, "{name} {unit} %d\\n", TY_HAS_{unit} && ty_trusts_{unit.lower()});'
        for unit in units
    )
    text = kernel.text.replace("\n\n", f"\n{WRONG.get(name, '')}\n", 1)
    names = f"#define ty_kernel {name}\n#define ty_blocks {name}_blocks\n"
    return f"{names}{text}\n__attribute__((destructor)) static void tell(void) {{ {trusts} }}\n"


def launch(
    toolchain: Toolchain, launches: Sequence[tuple[str, list[Array]]], folder: Path
) -> tuple[list[list[Array]], set[str]]:
    """The arrays after each launch of a kernel, and what the process prints of units."""
    kernels = {name: emit(name, toolchain.machine) for name in KERNELS}
    starts, size = list[list[int]](), 0
    for _, arrays in launches:
        starts.append([])
        for array in arrays:
            starts[-1].append(size)
            size += -(-array.nbytes // LINE) * LINE
    rows = []
    for (name, arrays), places in zip(launches, starts, strict=True):
        details = kernels[name].details
        numbers = (details.scratch_bytes, details.shared_bytes, details.claims, details.tags)
        words = ", ".join(map(str, (name, *numbers, len(arrays))))
        rows.append(f"{{{words}, {{{', '.join(map(str, places))}}}}}")
    declared = "".join(
        f"extern int32_t {name}(void *const *, const int64_t *, int32_t, int32_t, int64_t, int64_t,"
        " char *, char *);\n"
        for name in kernels
    )
    main = MAIN.replace("KERNELS", declared).replace("SIZE", str(size))
    (folder / "main.c").write_text(main.replace("LAUNCHES", ",\n".join(rows)))
    (folder / "tile.h").write_text(header_text())
    for name, kernel in kernels.items():
        (folder / f"{name}.c").write_text(write_kernel(name, kernel))
    files = ["main.c", *(f"{name}.c" for name in kernels)]
    command = [*toolchain.command, *toolchain.flags, "-static", "-I.", f"-I{HEADERS.parent}"]
    subprocess.run([*command, *files, "-o", "main", "-lm"], cwd=folder, check=True)
    data = np.zeros(size, np.uint8)
    for (_, arrays), places in zip(launches, starts, strict=True):
        for array, at in zip(arrays, places, strict=True):
            data[at : at + array.nbytes] = array.reshape(-1).view(np.uint8)
    emulated = [EMULATOR, "-cpu", "max", folder / "main"]
    done = subprocess.run(emulated, input=data.tobytes(), capture_output=True, check=True)
    results = [
        [
            np.frombuffer(done.stdout, array.dtype, array.size, at).reshape(array.shape)
            for array, at in zip(arrays, places, strict=True)
        ]
        for (_, arrays), places in zip(launches, starts, strict=True)
    ]
    return results, set(done.stderr.decode().splitlines())


def test_emulated_units_give_exact_sums_or_those_within_the_bound(tmp_path: Path) -> None:
    """All types, transpositions, ragged sizes, special numbers; a unit with wrong answers is not trusted."""
    asked = [COMPILER, "-print-file-name=libc.a"]
    library = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    if not Path(library).is_absolute():
        pytest.skip(f"{COMPILER} has no C library")
    toolchain = open_toolchain(
        COMPILER, CpuOptions(level="armv8.6-a", optimize=3 if IS_WHOLE else 1)
    )
    assert set(toolchain.machine.units) == {"bf16", "i8", "s8", "u8"}
    sets = [
        (name, check_sums, [draw_arrays(*choice) for choice in choices])
        for name, (choices, _) in KERNELS.items()
    ]
    for value, side in itertools.product(SPECIAL, (0, 1)):
        special = [draw_special(value, side, flips, sizes) for _, _, flips, sizes in SMALL]
        sets.append(("small", check_special, special))
    sets.append(("small", check_sums, [draw_tiny(flips, sizes) for _, _, flips, sizes in SMALL]))
    launches = [(name, list(itertools.chain(*arrays))) for name, _, arrays in sets]
    results, printed = launch(toolchain, launches, tmp_path)
    units = {(name, unit.upper()) for name, (_, units) in KERNELS.items() for unit in units}
    assert printed == {f"{name} {unit} {int(name not in WRONG)}" for name, unit in units}
    for (name, check, drawn), result in zip(sets, results, strict=True):
        for choice, arrays, sums in zip(KERNELS[name][0], drawn, result[2::3], strict=True):
            check(sums, arrays, choice[2], f"{name}: {choice}")
