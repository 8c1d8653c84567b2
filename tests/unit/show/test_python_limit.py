"""``--python-limit`` reaches the engine from every verb that runs a kernel file's own Python."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tileyard.base.errors import UsageError
from tileyard.verbs.compile.options.compile import start_compile
from tileyard.verbs.test.options.test import start_test
from tileyard.verbs.tune.options.tune import start_table, start_tune


def _start_table(path: str, given: Any) -> Any:  # noqa: ANN401 - a verb
    start = start_tune(path, "", {**given, "arg": {"M": [8, 16]}})
    return start_table(start, {**given, "arg": {"M": [8, 16]}})


STARTS: dict[str, Callable[[str, Any], Any]] = {
    "tune": lambda path, given: start_tune(path, "", given),
    "table": _start_table,
    "compile": lambda path, given: start_compile(path, "", given),
    "test": start_test,
}


@pytest.mark.parametrize("verb", STARTS)
def test_the_limit_reaches_the_verb(tmp_path: Path, verb: str) -> None:
    """In seconds; 0 selects the usual limits, and cannot be asked for."""
    start = STARTS[verb]
    assert start(str(tmp_path), {}).python_limit_s == 0.0
    assert start(str(tmp_path), {"python_limit": "5m"}).python_limit_s == 300.0
    with pytest.raises(UsageError, match=r"--python-limit is 0"):
        start(str(tmp_path), {"python_limit": "0s"})
