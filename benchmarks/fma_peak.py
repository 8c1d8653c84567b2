"""How fast cores multiply and add floats from registers alone: what bounds a product, whoever makes it."""

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

PEAK_C = """
#include <stdio.h>
#include <time.h>
typedef float v __attribute__((vector_size(VECTOR)));
#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
/* Rounds are shorter than what a scheduler gives at once: the best one was not interrupted. */
int main(void) {
  v b = (v){0} + 0.999f, c = (v){0} + 0.5f;
  double best = 0;
#define DECLARE(i) v a##i = (v){0} + (float)i;
  CHAINS(DECLARE)
  for (int round = 0; round < 400; round++) {
    struct timespec s, e;
    clock_gettime(CLOCK_MONOTONIC, &s);
    for (long n = 0; n < 200000; n++) {
#define STEP(i) a##i = a##i * b + c; __asm__ volatile("" : "+x"(a##i));
      CHAINS(STEP)
    }
    clock_gettime(CLOCK_MONOTONIC, &e);
    double seconds = (e.tv_sec - s.tv_sec) + 1e-9 * (e.tv_nsec - s.tv_nsec);
    double rate = 12.0 * 2 * (VECTOR / 4) * 2e5 / seconds / 1e9;
    if (rate > best) best = rate;
  }
#define SUM(i) + a##i[0]
  fprintf(stderr, "%f", 0 CHAINS(SUM));
  printf("%f", best);
}
"""


def measure_peak(cores: Sequence[int]) -> float:
    """GFLOP/s of independent chains of multiply-add on these cores at once."""
    wide = "avx512f" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder) / "peak.c", Path(folder) / "peak"
        source.write_text(PEAK_C, encoding="utf-8")
        flags = ["-O3", "-march=native", "-ffast-math", f"-DVECTOR={64 if wide else 32}"]
        subprocess.run(["cc", *flags, "-o", program, source], check=True)
        running = [
            subprocess.Popen(
                ["taskset", "-c", str(core), program],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            for core in cores
        ]
        return sum(float(process.communicate()[0]) for process in running)
