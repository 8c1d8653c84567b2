"""A target like ``scripted`` in whose runner one kernel of ``faults.py`` really crashes.

Generated code checks its indices, so a segmentation fault takes a broken target; this is one.
"""

import ctypes

from tileyard.testing.doubles.scripted import ScriptedTarget

MARK = b"12345"


class CrashingTarget(ScriptedTarget):
    """Reads address 0 when a kernel with the marked constant is loaded."""

    name = "crashing"

    def load(self, artifact, device):
        """Load, or crash."""
        if any(
            MARK in artifact.file(name).read_bytes()
            for name in artifact.manifest.files
            if name.endswith(".c")
        ):
            ctypes.string_at(0)
        return super().load(artifact, device)
