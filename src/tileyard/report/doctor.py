"""A diagnosis for people: one line a finding, and under it what to do."""

from rich.console import Console
from rich.text import Text

from tileyard.doctor.findings import Diagnosis, Level
from tileyard.report.words import clean_line

STYLES = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "red"}


def print_findings(console: Console, diagnosis: Diagnosis) -> None:
    """Print all findings, aligned."""
    width = max((len(finding.subject) for finding in diagnosis.findings), default=0)
    for finding in diagnosis.findings:
        line = Text.assemble(
            (f"{finding.level:<4}", STYLES[finding.level]),
            f"  {finding.subject:<{width}}  {clean_line(finding.message)}",
        )
        console.print(line, soft_wrap=True, highlight=False)
        if finding.todo:
            console.print(
                Text(f"{'':4}  {'':{width}}  -> {clean_line(finding.todo)}"), soft_wrap=True
            )
