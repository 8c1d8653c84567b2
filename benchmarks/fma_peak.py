"""How fast cores multiply and add floats from registers alone: what bounds a product, whoever makes it."""

import ctypes
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PEAK_C = """
#include <stdio.h>
#include <time.h>
typedef float v __attribute__((vector_size(VECTOR)));
#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
float multiply_and_add(long count) {
  v b = (v){0} + 0.999f, c = (v){0} + 0.5f;
#define DECLARE(i) v a##i = (v){0} + (float)i;
  CHAINS(DECLARE)
  for (long n = 0; n < count; n++) {
#define STEP(i) a##i = a##i * b + c; __asm__ volatile("" : "+x"(a##i));
    CHAINS(STEP)
  }
#define SUM(i) + a##i[0]
  return 0 CHAINS(SUM);
}
/* Rounds are shorter than what a scheduler gives at once: the best one was not interrupted. */
int main(void) {
  double best = 0;
  for (int round = 0; round < 400; round++) {
    struct timespec s, e;
    clock_gettime(CLOCK_MONOTONIC, &s);
    fprintf(stderr, "%f", multiply_and_add(200000));
    clock_gettime(CLOCK_MONOTONIC, &e);
    double seconds = (e.tv_sec - s.tv_sec) + 1e-9 * (e.tv_nsec - s.tv_nsec);
    double rate = 12.0 * 2 * (VECTOR / 4) * 2e5 / seconds / 1e9;
    if (rate > best) best = rate;
  }
  printf("%f", best);
}
"""
CHAINS = 12


def _vector_bytes() -> int:
    return 64 if "avx512f" in Path("/proc/cpuinfo").read_text(encoding="utf-8") else 32


def _build(folder: Path, name: str, *flags: str) -> Path:
    source, made = folder / "peak.c", folder / name
    source.write_text(PEAK_C, encoding="utf-8")
    # Contraction alone: what -ffast-math links in has the whole process take small numbers for 0.
    always = ["-O3", "-march=native", "-ffp-contract=fast", f"-DVECTOR={_vector_bytes()}"]
    subprocess.run(["cc", *always, *flags, "-o", made, source], check=True)
    return made


def measure_peak(cores: Sequence[int]) -> float:
    """GFLOP/s of independent chains of multiply-add on these cores at once."""
    with tempfile.TemporaryDirectory() as folder:
        program = _build(Path(folder), "peak")
        running = [
            subprocess.Popen(
                ["taskset", "-c", str(core), program],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            for core in cores
        ]
        return sum(float(process.communicate()[0]) for process in running)


def peak_call(work: int, cores: Sequence[int], folder: Path) -> Callable[[], object]:
    """As many operations as ``work``, shared among threads on these cores."""
    function = ctypes.CDLL(str(_build(folder, "peak.so", "-shared", "-fPIC"))).multiply_and_add
    function.restype, function.argtypes = ctypes.c_float, (ctypes.c_long,)
    count = work // (CHAINS * 2 * (_vector_bytes() // 4) * len(cores))
    if len(cores) == 1:
        return lambda: function(count)
    threads = ThreadPoolExecutor(len(cores))
    return lambda: list(threads.map(function, [count] * len(cores)))
