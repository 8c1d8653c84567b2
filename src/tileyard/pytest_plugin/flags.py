"""The options of a run with ``--tileyard``. Imports nothing of Tileyard: every pytest run loads it."""

from typing import Any

OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "target": ("cpu", {"metavar": "NAME", "help": "what kernels are compiled for"}),
    "device": ("the target's class", {
        "metavar": "NAME",
        "action": "append",
        "help": "what tests may lease; repeatable",
    }),
    "limit": ("5m", {"metavar": "TIME", "help": "how long a test may take before it is killed"}),
    "build-limit": ("5m", {"metavar": "TIME", "help": "how long a compile step may take"}),
    "queue-limit": ("30m", {"metavar": "TIME", "help": "how long a test may wait for a device"}),
    "workers": ("1", {"metavar": "N", "help": "tests at the same time, without pytest-xdist"}),
    "dynamic": ("error", {
        "metavar": "error|lease|prepare",
        "help": "what becomes of a test that compiles while it runs: error: it fails; lease: it holds a "
        "device from its first launch on; prepare: run each test once beforehand, up to its first device "
        "block, to compile what it needs",
    }),
    "report": ("", {"metavar": "FILE", "help": "write builds, holds of devices and results as JSON"}),
}  # fmt: skip
"""By name the default, as text or in words, and the rest for pytest's parser."""
