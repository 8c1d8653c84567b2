"""What TileLang's environment variables ask of a study."""

import pytest

from tileyard.base.errors import UsageError
from tileyard.verbs.exec.plan.grounds import Wishes, read_wishes


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
