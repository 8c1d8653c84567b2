"""What TileLang's environment variables ask of a study, and what of a Program is work on a CPU."""

import pytest

from tileyard.base.errors import UsageError
from tileyard.base.model import Kernel
from tileyard.ir.printer import print_program
from tileyard.ir.reader import read_program
from tileyard.verbs.exec.plan.grounds import Wishes, as_cpu_work, read_wishes


@pytest.mark.parametrize(
    ("environ", "wishes"),
    [
        ({}, Wishes()),
        ({"TILELANG_AUTO_TUNING_CPU_COUNTS": "2"}, Wishes(compile_workers=2)),
        ({"TILELANG_AUTO_TUNING_CPU_COUNTS": "64"}, Wishes(compile_workers=8)),
        ({"TILELANG_AUTO_TUNING_CPU_COUNTS": "-1"}, Wishes()),
        ({"TILELANG_AUTO_TUNING_CPU_UTILITIES": "0.5"}, Wishes(compile_workers=4)),
        ({"TILELANG_AUTO_TUNING_MAX_CPU_COUNT": "3"}, Wishes(compile_workers=3)),
        (
            {
                "TILELANG_AUTO_TUNING_CPU_UTILITIES": "0.2",
                "TILELANG_AUTO_TUNING_MAX_CPU_COUNT": "3",
            },
            Wishes(compile_workers=1),
        ),
        ({"TILELANG_COMPILE_TIMEOUT_SECONDS": "1.5"}, Wishes(build_s=1.5)),
        ({"TILELANG_COMPILE_TIMEOUT_SECONDS": "0"}, Wishes()),
        ({"TILELANG_DISABLE_CACHE": "On"}, Wishes(reuse=False)),
        ({"TILELANG_AUTO_TUNING_DISABLE_CACHE": "1"}, Wishes(reuse=False)),
        ({"TILELANG_DISABLE_CACHE": "0"}, Wishes()),
    ],
)
def test_each_asks_for_what_it_asks_of_tilelang(environ: dict[str, str], wishes: Wishes) -> None:
    """On eight cores."""
    assert read_wishes(environ, 8) == wishes


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TILELANG_AUTO_TUNING_CPU_COUNTS", "many"),
        ("TILELANG_COMPILE_TIMEOUT_SECONDS", "nan"),
        ("TILELANG_COMPILE_TIMEOUT_SECONDS", "-1"),
    ],
)
def test_what_is_no_number_is_refused_by_name(name: str, text: str) -> None:
    """In one line."""
    with pytest.raises(UsageError, match=name):
        read_wishes({name: text}, 8)


PROGRAM = """def scale(X: float32[64], Y: out.float32[64]):
    bx: grid[2]
    threads(128)
    t: shared.float32[16]

    for k in pipelined(2, stages=3):
        copy(X[bx * 32 + k * 16 : +16], t)
        copy(t, Y[bx * 32 + k * 16 : +16])
"""


def test_threads_and_stages_are_no_work() -> None:
    """Programs that differ in them alone come to the same text, which is a Program's; no other does."""
    others = {
        PROGRAM.replace("threads(128)", "threads(32, 4)"),
        PROGRAM.replace("stages=3", "stages=2"),
        PROGRAM.replace("    threads(128)\n", ""),
    }
    found = {as_cpu_work(Kernel(name="scale", program=text)).program for text in {PROGRAM, *others}}
    expected = 1
    assert len(found) == expected
    (work,) = found
    assert print_program(read_program(work)) == work
    assert as_cpu_work(Kernel(name="scale", program=PROGRAM.replace("[2]", "[1]"))).program != work
