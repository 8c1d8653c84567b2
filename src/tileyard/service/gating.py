"""The file of ``tileyard regress --allow``: margins of single cases, and what may be worse until a day."""

from pathlib import Path

import msgspec

from tileyard.errors import UsageError
from tileyard.regress.gate import CaseMargin, Gate
from tileyard.regress.static import BUILD
from tileyard.regress.timed import Allowance
from tileyard.suite.files.places import Document, Place, Table
from tileyard.suite.files.tables import Strict, decode, decode_all


class AllowFile(Strict):
    """The file itself."""

    allow: tuple[Table, ...] = ()
    margin: tuple[Table, ...] = ()


def read_gate(path: Path | None, asked: Gate) -> Gate:
    """The gate that is asked for, with what the file adds.

    Raises UsageError for a file of something else, for a limit within the margin, and for one of build times.
    """
    if asked.fail_over and asked.fail_over < asked.margin:
        raise UsageError(
            f"--fail-over {100 * asked.fail_over:g}% is less than the margin of {100 * asked.margin:g} %",
            "changes within the margin are noise: lower --margin as well",
        )
    if any(limit.metric == BUILD for limit in asked.limits):
        raise UsageError("--fail-on build takes several builds: tileyard static --repeat 5")
    if path is None:
        return asked
    top = Place(document=Document(path))
    table = decode(top.document.table, AllowFile, top)
    return msgspec.structs.replace(
        asked,
        allow=decode_all(table.allow, Allowance, top / "allow"),
        margins=decode_all(table.margin, CaseMargin, top / "margin"),
    )
