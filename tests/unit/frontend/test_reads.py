"""What answers depend on is noted in full, and any change of it is seen."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tileyard.artifacts.footprint import Footprint
from tileyard.artifacts.objects import digest_parts
from tileyard.frontend.reads import describe_surroundings, find_read, is_current, would_read_again

pytestmark = pytest.mark.slow

RECORD = """
import os, runpy, sys
import msgspec
from pathlib import Path
from tileyard.frontend.reads import Recorder
folder, apart, out = map(Path, sys.argv[1:])
recorder = Recorder(dict(os.environ), (apart,))
recorder.begin()
sys.path.insert(0, str(folder))
import kernels
out.write_bytes(msgspec.msgpack.encode([recorder.news(), recorder.news()]))
"""

FILES = {
    "kernels.py": """
import importlib.util, os
import helper
import pieces.first
try:
    import sooner_or_later
except ImportError:
    pass
try:
    open("override.json")
except FileNotFoundError:
    pass
here = os.path.dirname(__file__)
spec = importlib.util.spec_from_file_location("loaded", os.path.join(here, "by_hand.py"))
spec.loader.exec_module(importlib.util.module_from_spec(spec))
exec(compile(open(os.path.join(here, "script.txt")).read(), "script", "exec"))
table = open(os.path.join(here, "table.csv")).read()
flavour = os.environ.get("KERNEL_FLAVOUR")
open(os.path.join(here, "apart", "object")).read()
with open(os.path.join(here, "imports.log"), "a") as log:
    log.write("once more")
""",
    "helper.py": "import deeper\n",
    "deeper.py": "VALUE = 1\n",
    "by_hand.py": "VALUE = 2\n",
    "script.txt": "value = 3\n",
    "table.csv": "1,2,3\n",
    "pieces/__init__.py": "",
    "pieces/first.py": "try:\n    from . import second\nexcept ImportError:\n    pass\n",
    "apart/object": "content",
    "bystander.py": "",
}


def record(folder: Path, env: dict[str, str]) -> tuple[Footprint, Footprint | None]:
    """The footprint of a process that imports ``kernels`` of a folder, and what it tells next."""
    out = folder / "footprint"
    subprocess.run(
        [sys.executable, "-c", RECORD, str(folder), str(folder / "apart"), str(out)],
        cwd=folder,
        env=env,
        check=True,
    )
    decoded = msgspec.msgpack.decode(out.read_bytes(), type=tuple[Footprint, Footprint | None])
    out.unlink()
    return decoded


@pytest.fixture(scope="module")
def environ() -> dict[str, str]:
    """What the recorded process finds in its environment."""
    own = {**os.environ, "KERNEL_FLAVOUR": "plain"}
    own.pop("PYTHONDONTWRITEBYTECODE", None)
    return own


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a kernel file and all that it uses."""
    folder = tmp_path_factory.mktemp("mine")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def footprint(folder: Path, environ: dict[str, str]) -> Footprint:
    """What importing the kernel file leaves, where the interpreter needs no source any more."""
    record(folder, environ)
    assert list(folder.rglob("helper.*.pyc"))
    return record(folder, environ)[0]


@contextlib.contextmanager
def changed(path: Path, text: str) -> Iterator[None]:
    """For a while, a file has another content."""
    before = path.read_text() if path.exists() else None
    path.write_text(text)
    try:
        yield
    finally:
        if before is None:
            path.unlink()
        else:
            path.write_text(before)


def test_what_is_as_it_was_is_current(footprint: Footprint, environ: dict[str, str]) -> None:
    """Nothing changed, so nothing is seen to have changed."""
    expected = True
    assert is_current(footprint, environ) is expected


@pytest.mark.parametrize(
    "name",
    [
        "kernels.py",
        "helper.py",
        "deeper.py",
        "by_hand.py",
        "script.txt",
        "table.csv",
        "override.json",
        "sooner_or_later.py",
        "pieces/second.py",
        "msgspec.py",
    ],
)
def test_a_file_that_was_used_or_missed_counts(
    folder: Path, footprint: Footprint, environ: dict[str, str], name: str
) -> None:
    """Code, however it was loaded, data, and what would be found now where nothing was before."""
    before = FILES.get(name, "")
    expected = [False, True]
    with changed(folder / name, f"{before}\n# a comment\n"):
        seen = is_current(footprint, environ)
    assert [seen, is_current(footprint, environ)] == expected


@pytest.mark.parametrize("name", ["bystander.py", "unheard_of.py", "imports.log", "apart/object"])
def test_a_file_that_was_not_used_does_not_count(
    folder: Path, footprint: Footprint, environ: dict[str, str], name: str
) -> None:
    """Neighbours, files that are only written, and the folders set apart change nothing."""
    expected = True
    with changed(folder / name, "something else"):
        assert is_current(footprint, environ) is expected


def test_variables_that_the_code_names_count(footprint: Footprint, environ: dict[str, str]) -> None:
    """A variable of the user's own code counts, set or not; others don't."""
    expected = {"variable KERNEL_FLAVOUR": digest_parts("plain")}
    assert expected.items() <= footprint.parts.items()
    assert not is_current(footprint, {**environ, "KERNEL_FLAVOUR": "sweet"})
    without = {name: value for name, value in environ.items() if name != "KERNEL_FLAVOUR"}
    assert not is_current(footprint, without)
    assert is_current(footprint, {**environ, "NOBODY_NAMES_THIS": "1"})


def test_code_that_changes_while_it_runs_is_not_settled(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    """What a process writes and then imports can't be vouched for; what it cleans up can."""
    source = "from pathlib import Path\nPath('made.py').write_text('x = 1')\nimport made\n"
    (tmp_path / "apart").mkdir()
    (tmp_path / "kernels.py").write_text(source)
    kept, _ = record(tmp_path, environ)
    (tmp_path / "made.py").unlink()
    (tmp_path / "kernels.py").write_text(f"{source}Path('made.py').unlink()\n")
    cleaned, _ = record(tmp_path, environ)
    expected = [False, True]
    assert [not kept.doubts, not cleaned.doubts] == expected
    assert [is_current(kept, environ), is_current(cleaned, environ)] == expected


def test_only_news_is_told(folder: Path, environ: dict[str, str]) -> None:
    """A footprint that did not grow is not told again."""
    expected = None
    assert record(folder, environ)[1] is expected


def test_surroundings_name_packages_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version of an installed package, or a setting of TileLang's, is another place."""
    (tmp_path / "tilelang-0.1.15.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    before = describe_surroundings({})
    expected = "tilelang-0.1.15.dist-info"
    assert expected in before
    assert describe_surroundings({"HARMLESS": "1"}) == before
    assert describe_surroundings({"TILELANG_DEFAULT_TARGET": "cuda"}) != before
    (tmp_path / expected).rename(tmp_path / "tilelang-0.1.16.dist-info")
    assert describe_surroundings({}) != before


def test_what_a_found_result_has_read_is_heard_of(tmp_path: Path) -> None:
    """A footprint depends on it although no function runs, on an absent file, too."""
    there, absent = tmp_path / "there", tmp_path / "absent"
    there.touch()
    heard: set[object] = set()
    sys.addaudithook(lambda *event: heard.add(find_read(*event)) if is_on else None)
    is_on = True
    for path in (there, absent):
        would_read_again(Footprint(parts={f"file {path}": ""}), ())
    is_on = False
    assert {str(there), str(absent)} <= heard
