"""What a launch tells besides its results: why it failed, and at which of the user's lines."""

import ctypes
from collections.abc import Mapping, Sequence

from tileyard.errors import KernelFault
from tileyard.model import SourceLine
from tileyard.targets.cpu.emit.context import Fault
from tileyard.wording import name_line

SITES = 3
TEXT_BYTES = 480


class Report(ctypes.Structure):
    """``ty_report`` of ``report.h``; one for each launch that may go on at the same time."""

    _fields_ = (
        ("lines", ctypes.c_void_p),
        ("line_count", ctypes.c_int32),
        ("is_quiet", ctypes.c_int32),
        ("is_taken", ctypes.c_int32),
        ("site_count", ctypes.c_int32),
        ("sites", ctypes.c_int32 * SITES),
        ("value", ctypes.c_int64),
        ("text", ctypes.c_char * TEXT_BYTES),
    )


class LineTable:
    """The user's lines by the number of the statement, as people write them and as C finds them.

    They are of one kernel, not of its binary: kernels of several files may share one.
    """

    def __init__(self, lines: Mapping[int, SourceLine]) -> None:
        self._names = {number: name_line(at.file, at.line) for number, at in lines.items()}
        self._count = max(self._names, default=-1) + 1
        self._texts = (ctypes.c_char_p * self._count)()
        for number, name in self._names.items():
            self._texts[number] = f"{name}: ".encode("utf-8", "replace")
        self._address = ctypes.addressof(self._texts)

    def make_report(self) -> Report:
        """An empty report that has these lines. They have to live as long as it."""
        return Report(self._address, self._count)

    def find(self, statement: int) -> str:
        """``kernels.py:41`` for a statement, empty where that is not known."""
        return self._names.get(statement, "")


NO_LINES = LineTable({})


def explain(kernel: str, faults: Sequence[Fault], report: Report, lines: LineTable) -> KernelFault:
    """The error that a launch reported; the report is ready for the next one then."""
    sites, value = list(report.sites)[: report.site_count], int(report.value)
    text = bytes(report.text).decode("utf-8", "replace")
    report.is_taken, report.site_count, report.text = 0, 0, b""
    told = [_describe(faults[site - 1], value, text, lines) for site in sites]
    if not any(lines.find(faults[site - 1].statement) for site in sites):
        return KernelFault(f"{kernel}: {'; '.join(told)}")
    return KernelFault("; ".join(told))


def _describe(fault: Fault, value: int, text: str, lines: LineTable) -> str:
    place = lines.find(fault.statement)
    values = f"{fault.value} = {value}" if fault.value else text
    # A constant says it itself.
    shown = f" ({values})" if values and values != f"{value} = {value}" else ""
    return f"{place}: {fault.message}{shown}" if place else f"{fault.message}{shown}"
