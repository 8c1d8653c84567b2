"""The file of ``tileyard regress --allow``: margins of single cases, and what may be worse until a day."""

import datetime
from pathlib import Path

from tileyard.errors import UsageError
from tileyard.regress.gate import CaseMargin, Gate
from tileyard.regress.timed import Allowance
from tileyard.suite.files.places import Document, Place, Table
from tileyard.suite.files.tables import Strict, decode, decode_all


class AllowFile(Strict):
    """The file itself."""

    allow: tuple[Table, ...] = ()
    margin: tuple[Table, ...] = ()


def read_gate(path: Path | None, margin: float, fail_over: float, today: datetime.date) -> Gate:
    """The gate of a margin and a limit, shares of base's time; 0 is no limit of its own.

    Raises UsageError for a file of something else, and for a limit within the margin.
    """
    if fail_over and fail_over < margin:
        raise UsageError(
            f"--fail-over {100 * fail_over:g}% is less than the margin of {100 * margin:g} %",
            "changes within the margin are noise: lower --margin as well",
        )
    gate = Gate(margin=margin, fail_over=fail_over, today=today)
    if path is None:
        return gate
    document = Document(path)
    top = Place(document=document)
    table = decode(document.table, AllowFile, top)
    return Gate(
        margin=margin,
        fail_over=fail_over,
        today=today,
        allow=decode_all(table.allow, Allowance, top / "allow"),
        margins=decode_all(table.margin, CaseMargin, top / "margin"),
    )
