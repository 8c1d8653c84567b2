"""What the kernel says of a CPU becomes the identity behind a measurement."""

from pathlib import Path

from tileyard.devices.cpu import identify_cpu, physical_core

INTEL = """processor : 0
cpu family : 6
model : 143
model name : Intel(R) Xeon(R) Platinum 8480+
stepping : 8
flags : lm cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3 avx avx2 bmi1 bmi2 f16c fma abm movbe xsave \
avx512f avx512bw avx512cd avx512dq avx512vl avx512_fp16 amx_tile

processor : 1
model name : another one
"""
ARM = """processor : 0
Features : fp asimd asimdhp sve bf16
CPU implementer : 0x41
CPU variant : 0x1
CPU part : 0xd40
CPU revision : 1
"""


def make_root(root: Path, cpuinfo: str, siblings: dict[int, str]) -> Path:
    """A machine with this text and these lists of hardware threads."""
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(cpuinfo, encoding="utf-8")
    for core, names in siblings.items():
        topology = root / f"sys/devices/system/cpu/cpu{core}/topology"
        topology.mkdir(parents=True)
        (topology / "core_cpus_list").write_text(names + "\n", encoding="utf-8")
    return root


def test_identity_names_silicon_and_how_it_is_driven(tmp_path: Path) -> None:
    """Model, features, cores used, governor and limit are there; nothing else is."""
    root = make_root(tmp_path, INTEL, {0: "0,2", 1: "1,3", 2: "0,2"})
    for core in (0, 1):
        folder = root / f"sys/devices/system/cpu/cpu{core}/cpufreq"
        folder.mkdir()
        (folder / "scaling_governor").write_text("performance\n", encoding="utf-8")
        (folder / "scaling_max_freq").write_text("3800000\n", encoding="utf-8")
    expected = (
        "Intel(R) Xeon(R) Platinum 8480+ (6/143/8), x86-64-v4+avx512_fp16+amx_tile, "
        "2 logical cores, governor performance, up to 3800 MHz"
    )
    assert identify_cpu([0, 1], root) == expected


def test_shared_cores_and_hypervisors_are_told(tmp_path: Path) -> None:
    """Two threads of one core are not two cores, and a virtual machine is not the silicon."""
    text = INTEL.replace("avx512f", "hypervisor")
    root = make_root(tmp_path, text, {0: "0,2", 2: "0,2"})
    expected = (
        "Intel(R) Xeon(R) Platinum 8480+ (6/143/8), x86-64-v3+avx512_fp16+amx_tile, "
        "2 logical cores, on 1 physical, virtualised"
    )
    assert identify_cpu([0, 2], root) == expected


def test_identity_of_an_arm_core(tmp_path: Path) -> None:
    """Where there is no name, the numbers of implementer and part stand for it."""
    root = make_root(tmp_path, ARM, {})
    expected = "(0x41/0xd40/0x1/1)"
    assert expected in identify_cpu([0], root)
    assert "+asimd+asimdhp+bf16+sve" in identify_cpu([0], root)


def test_physical_core_is_the_same_for_all_its_threads(tmp_path: Path) -> None:
    """Hardware threads agree on one number, and a core without topology is its own."""
    root = make_root(tmp_path, "", {0: "0,2", 2: "0,2", 5: "4-5"})
    expected = {0: 0, 2: 0, 5: 4, 7: 7}
    assert {core: physical_core(core, root) for core in expected} == expected
