"""Prints the JSON schema of what a command prints with ``--json``.

``python tools/schema.py regress > docs/reference/regress.schema.json``, and ``check`` likewise.
"""

import json
import sys

import msgspec

from tileyard.verbs.check.view.findings import SyncReport
from tileyard.verbs.regress.result import Regression

DOCUMENTS = {"regress": Regression, "check": SyncReport}


def describe_schema(command: str) -> str:
    """The schema as the page holds it."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **msgspec.json.schema(DOCUMENTS[command]),
    }
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    print(describe_schema(sys.argv[1]), end="")
