"""What a build for CPUs can be asked for: the CPU level, and how the C compiler makes code of it.

Written after the target's name, as in ``cpu:x86-64-v3`` or ``cpu:native,vectors=128``. The defaults
are those that benchmarks/cpu_kernels.py found fastest.
"""

from tileyard.errors import UsageError
from tileyard.model import Record

_WIDTHS = ("128", "256", "512")
_CHOICES = {
    "vectors": _WIDTHS,
    "optimize": ("1", "2", "3"),
    "unroll": ("0", "1"),
    "debug": ("0", "1"),
}
"""Every option but the level, with its values."""


class CpuOptions(Record):
    """``vectors`` are the widest in bits, 0 for what the CPU has; ``unroll`` unrolls all loops.

    ``debug`` keeps what a debugger asks for, variables and lines of the C, at the cost of speed.
    """

    level: str = "native"
    vectors: int = 0
    optimize: int = 3
    unroll: int = 0
    debug: int = 0

    @property
    def name(self) -> str:
        """The options as they stand after the target's name; empty where all are the defaults."""
        usual = CpuOptions()
        others = [
            f"{key}={getattr(self, key)}"
            for key in _CHOICES
            if getattr(self, key) != getattr(usual, key)
        ]
        return ",".join([self.level, *others]) if others or self.level != usual.level else ""

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of the C compiler, its vectors aside."""
        unroll = ("-funroll-loops",) if self.unroll else ()
        if self.debug:
            return (f"-march={self.level}", "-O0", "-g", *unroll)
        return (f"-march={self.level}", f"-O{self.optimize}", *unroll)


def parse_options(text: str) -> CpuOptions:
    """The options that stand after the target's name. Raises UsageError."""
    level, *rest = text.split(",")
    values = {}
    for part in rest:
        key, _, value = part.partition("=")
        if value not in _CHOICES.get(key, ()):
            known = ", ".join(f"{name}={'|'.join(all_)}" for name, all_ in _CHOICES.items())
            raise UsageError(f"the target cpu has no option {part}", hint=f"options: {known}")
        values[key] = int(value)
    return CpuOptions(level=level or "native", **values)
