"""Nothing that is printed in a job of GitHub Actions is a command, however it is written."""

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileyard.show.guarding import GuardedStream, escape

pieces = st.lists(st.sampled_from(["#", "##[", "[add-mask]x", ":", "::", " ", "\n", "\r", "a"]),
                  max_size=12)  # fmt: skip


@given(pieces)
def test_no_line_is_a_command(texts: list[str]) -> None:
    """As GitHub's runner reads them: ``##[`` anywhere, or ``::`` first but for blanks; else unchanged."""
    stream = GuardedStream(io.BytesIO(), "utf-8", newline="")
    for text in texts:
        stream.write(text)
    stream.flush()
    shown = stream.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert "##[" not in shown
    assert not any(line.lstrip().startswith("::") for line in shown.splitlines())
    assert shown.replace("\\u005b", "[").replace("\\u003a", ":") == "".join(texts)


def test_json_means_the_same() -> None:
    """An escape is one of JSON, too."""
    stream = GuardedStream(io.BytesIO(), "utf-8")
    stream.write(json.dumps({"##[debug]": "::x"}) + "\n")
    stream.command("::error ::##[debug]")
    stream.flush()
    first, second = stream.buffer.getvalue().decode().splitlines()  # type: ignore[attr-defined]
    assert json.loads(first) == {"##[debug]": "::x"}
    assert second == "::error ::##\\u005bdebug]"


def test_elsewhere_text_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only GitHub's runner obeys it."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert escape("##[debug]") == "##[debug]"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert escape("a\n ::debug::\n##[x]") == "a\n :\\u003adebug::\n##\\u005bx]"
