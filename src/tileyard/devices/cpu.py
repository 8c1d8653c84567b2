"""Identifies a CPU and its settings, as the kernel reports them; sets of its cores: notation and locks."""

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tileyard.base.errors import UsageError
from tileyard.base.model import Device
from tileyard.devices.base import DeviceClass

CPU = DeviceClass(is_declarable=False, is_cores=True)
X86_LEVELS: Final = (
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("x86-64-v3", {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}),
    ("x86-64-v2", {"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"}),
)
"""The psABI's levels, highest first, each with its additional features under the kernel's names."""
FURTHER_FEATURES: Final = (
    "avx512_fp16",
    "avx512_bf16",
    "avx512_vnni",
    "avx_vnni",
    "amx_tile",
    "asimd",
    "asimdhp",
    "bf16",
    "sve",
    "sve2",
)
SYNTAX = "write cores as 0-1,3"
MAX_CORES = 8192  # the largest number that Linux can be built for


def plain_cpu(cores: tuple[int, ...]) -> Device:
    """A device of these cores for work in this process that leases nothing."""
    return Device(name="cpu", kind="cpu", identity="", cores=cores)


def identify_cpu(cores: Sequence[int], root: Path = Path("/")) -> str:
    """The silicon and its settings in one line, equal if timings are comparable: model, features, number of
    cores, frequency governor and limit if shown, and whether virtual. ``root`` contains ``proc`` and ``sys``.
    """
    flags = _read_flags(_read_cpuinfo(root))
    physical = len({physical_core(core, root) for core in cores})
    parts = [identify_model(root), f"{len(cores)} logical cores"]
    if physical != len(cores):
        parts.append(f"on {physical} physical")
    parts += _describe_frequency(cores, root)
    if "hypervisor" in flags or (root / "sys/hypervisor/type").exists():
        parts.append("virtualised")
    return ", ".join(parts)


def name_kind(identity: str) -> str:
    """The parts of a CPU's identity that decide which code it runs: its model and its features."""
    return ", ".join(identity.split(", ")[:2])


def identify_model(root: Path = Path("/")) -> str:
    """The model and its features: the beginning of each identity of its cores."""
    facts = _read_cpuinfo(root)
    flags = _read_flags(facts)
    further = [feature for feature in FURTHER_FEATURES if feature in flags]
    return f"{_name_model(facts)}, {'+'.join([_name_level(flags), *further])}"


def physical_core(core: int, root: Path = Path("/")) -> int:
    """The lowest of the logical CPUs that share this one's core: the same for all of them."""
    topology = root / f"sys/devices/system/cpu/cpu{core}/topology"
    siblings = _read(topology / "core_cpus_list") or _read(topology / "thread_siblings_list")
    return int(siblings.replace("-", ",").split(",")[0]) if siblings else core


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _read_cpuinfo(root: Path) -> dict[str, str]:
    """The first processor's entry in ``/proc/cpuinfo``."""
    first = _read(root / "proc/cpuinfo").partition("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


def _read_flags(facts: dict[str, str]) -> set[str]:
    return set((facts.get("flags") or facts.get("Features") or "").split())


def _name_model(facts: dict[str, str]) -> str:
    """The marketing name, with its model numbers: hypervisors often shorten the name."""
    name = facts.get("model name", "")
    if "cpu family" in facts:
        numbers = "/".join(facts.get(key, "0") for key in ("cpu family", "model", "stepping"))
        return f"{name or 'x86'} ({numbers})"
    numbers = "/".join(
        facts.get(key, "0")
        for key in ("CPU implementer", "CPU part", "CPU variant", "CPU revision")
    )
    return f"{name or platform.machine()} ({numbers})"


def _name_level(flags: set[str]) -> str:
    if "lm" not in flags:
        return platform.machine()
    have = "x86-64"
    for level, added in reversed(X86_LEVELS):
        if not added <= flags:
            break
        have = level
    return have


def _describe_frequency(cores: Sequence[int], root: Path) -> list[str]:
    """Governor and limit, if the kernel shows them; several if the cores differ."""
    folders = [root / f"sys/devices/system/cpu/cpu{core}/cpufreq" for core in cores]
    governors = sorted({_read(folder / "scaling_governor") for folder in folders} - {""})
    limits = sorted(
        {int(text) for folder in folders if (text := _read(folder / "scaling_max_freq"))}
    )
    parts = [f"governor {'/'.join(governors)}"] if governors else []
    if limits:
        parts.append(f"up to {'/'.join(str(khz // 1000) for khz in limits)} MHz")
    return parts


def parse_cores(text: str, subject: str) -> tuple[int, ...]:
    """``0-1,3`` as ascending numbers; ``subject`` is the subject of errors."""
    cores: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal()) or int(first) > int(last):
            raise UsageError(f"{subject} has no valid set of cores: {part!r}", SYNTAX)
        if int(last) >= MAX_CORES:
            raise UsageError(f"{subject} names a core above {MAX_CORES - 1}: {part!r}", SYNTAX)
        cores.update(range(int(first), int(last) + 1))
    return tuple(sorted(cores))


def share_out(cores: Sequence[int], count: int) -> Iterator[Sequence[int]]:
    """Cores in this number of parts, which differ by one at most; some are empty if there are too few."""
    return (cores[len(cores) * i // count : len(cores) * (i + 1) // count] for i in range(count))


def require_cores(cores: Iterable[int], available: Iterable[int], subject: str) -> None:
    """Raise UsageError if a core is not among the available ones."""
    missing = sorted(set(cores) - set(available))
    if missing:
        raise UsageError(
            f"{subject} names cores {format_cores(missing)}, which are not available",
            f"available are {format_cores(available)}",
        )


def find_absent(cores: Iterable[int], root: Path = Path("/")) -> tuple[int, ...]:
    """Those of ``cores`` that this host does not have; none where the kernel does not say."""
    present = _read(root / "sys/devices/system/cpu/present")
    return tuple(sorted(set(cores) - {*parse_cores(present, "the kernel")})) if present else ()


def format_cores(cores: Iterable[int]) -> str:
    """Ascending numbers as ``0-1,3``."""
    spans: list[list[int]] = []
    for core in sorted(cores):
        if spans and spans[-1][1] == core - 1:
            spans[-1][1] = core
        else:
            spans.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def core_locks(
    cores: Iterable[int], lock_dir: Path, physical: Callable[[int], int] = physical_core
) -> tuple[str, ...]:
    """One lock file per physical core, ascending: sets that share one exclude each other."""
    return tuple(
        str(lock_dir / f"cpu-{core}.lock") for core in sorted({physical(core) for core in cores})
    )
