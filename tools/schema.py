"""Prints the JSON schema of what ``tileyard regress --json`` prints.

``python tools/schema.py > docs/reference/regress.schema.json``
"""

import json

import msgspec

from tileyard.regress.timed import Regression


def describe_schema() -> str:
    """The schema as the page holds it."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **msgspec.json.schema(Regression),
    }
    return json.dumps(schema, indent=2) + "\n"


if __name__ == "__main__":
    print(describe_schema(), end="")
