"""Failures planted in kernels of more than 60 statements, and what of them a reduction has to keep."""

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
LARGE = FOLDER / "large.py"
IMPORT = "import spoiled  # noqa: F401 - its pipelines\nimport tilelang\n"
"""Puts the pipelines with mistakes into the author's process."""


@dataclass(frozen=True, kw_only=True)
class Planted:
    """``old`` text becomes ``new`` and fails as ``options`` say; ``kept`` stays, also in its first line."""

    kernel: str
    sizes: tuple[str, ...]
    options: tuple[str, ...]
    old: str = ""
    new: str = ""
    kept: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """Those of the command, for the file ``large.py``."""
        sizes = [word for size in self.sizes for word in ("--arg", size)]
        return ("reduce", f"large.py::{self.kernel}", *self.options, *sizes)

    def text(self) -> str:
        """The file with the failure."""
        source = LARGE.read_text(encoding="utf-8").replace("import tilelang\n", IMPORT, 1)
        head, name, tail = source.partition(f"def {self.kernel}(")
        assert not self.old or self.old in tail, self.old
        return head + name + tail.replace(self.old, self.new, 1)


CHECK = ("--while", "check")
LENGTH = ("length=64",)
SIZES = ("M=16", "N=16", "K=64")

PLANTED = {
    "wait too weak": Planted(
        kernel="attend",
        sizes=LENGTH,
        options=CHECK,
        old="T.ptx_wait_group(2)",
        new="T.ptx_wait_group(4)",
        kept=("read before arrival", "wait_group("),
    ),
    "wait missing": Planted(
        kernel="attend",
        sizes=LENGTH,
        options=CHECK,
        old="T.clear(made)\n            T.ptx_wait_group(0)",
        new="T.clear(made)",
        kept=("read before arrival",),
    ),
    "stage overwritten": Planted(
        kernel="attend",
        sizes=LENGTH,
        options=CHECK,
        old="v[(t + 2) % 3, :, :])",
        new="v[(t + 1) % 3, :, :])",
        kept=("in flight",),
    ),
    "arrive missing": Planted(
        kernel="produce",
        sizes=SIZES,
        options=CHECK,
        old=(
            "T.gemm(a[k % 2, :, :], d[k % 2, :, :], right)\n"
            "                    T.barrier_arrive(free[k % 2])"
        ),
        new="T.gemm(a[k % 2, :, :], d[k % 2, :, :], right)",
        kept=("deadlock", "mbarrier_wait_parity(free["),
    ),
    "wrong parity": Planted(
        kernel="produce",
        sizes=SIZES,
        options=CHECK,
        old="T.barrier_wait(free[(steps + m) % 2], ((steps + m) // 2 + 1) % 2)",
        new="T.barrier_wait(free[(steps + m) % 2], (steps + m) // 2 % 2)",
        kept=("in flight", "tma_copy("),
    ),
    "race of roles": Planted(
        kernel="produce",
        sizes=SIZES,
        options=CHECK,
        old="T.barrier_wait(ready[0], 0)",
        new="T.sync_threads(3, 128)",
        kept=("kept", "race"),
    ),
    "version dropped by a pass": Planted(
        kernel="backward",
        sizes=LENGTH,
        options=("--while", "mismatch", "--pipeline", "wrong_versions"),
        kept=("version-buffers broke it", "T.Pipelined("),
    ),
    "wait weakened by a pass": Planted(
        kernel="backward",
        sizes=LENGTH,
        options=("--while", "mismatch", "--pipeline", "wrong_waits"),
        kept=("inject-pipeline broke it", "T.Pipelined("),
    ),
    "wrong result of a target": Planted(
        kernel="backward",
        sizes=LENGTH,
        options=("--while", "mismatch", "--target", "wrong"),
        kept=("max(",),
    ),
    "command": Planted(
        kernel="backward",
        sizes=LENGTH,
        options=("--while", "grep -q Pipelined {} && grep -q abs {}"),
        kept=("T.abs(", "T.Pipelined("),
    ),
    "operation not supported": Planted(
        kernel="backward",
        sizes=LENGTH,
        options=("--while", "compile_error"),
        old="T.copy(dk, more)",
        new="T.copy(more[0 : block // 2, :], more[block // 2 : block, :])",
        kept=("copy within more", "T.copy(more"),
    ),
}
"""By what is planted."""
