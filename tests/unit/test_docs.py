"""What pages say of the command line, of files and of each other is so."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.conftest import ROOT
from tests.pages.blocks import MARKS, PAGES, SHELL, blank_blocks, list_blocks
from tools.picture import EDITS, edit
from typer.main import get_command

from tileyard.base.model import Outcome
from tileyard.cli.main import app
from tileyard.pytest_plugin.flags import OPTIONS
from tileyard.targets.cuda import driver, packages
from tileyard.verbs.exec import help as exec_help
from tileyard.verbs.lease import help as lease_help

OTHERS = {
    "ctest": {"--output-junit"},
    "docker": {"-v"},
    "git": {"--name-only"},
    "ld": {"--disable-new-dtags"},
    "pytest": {"-k", "-m", "-n", "-q", "--durations", "--ff", "--maxfail", "--nf", "--pdb", "--sw"},
    "python": {"-c", "-m", "-S", "-E", "-I"},
}
"""Options of other programs that pages name alone, in backquotes."""
FOLDERS = ("src", "docs", "tests", "examples", "benchmarks", "tools")

_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_PROMPT = re.compile(r"^\s*(?:(?:\w*\$|- run:|run:|[*/0-9 ]+\*)\s+)?tileyard(\s.*)?$")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


_ODD = re.compile(
    r"\b(?:(?:is|are) told|whoever|stands? for|is said|a home|is to be had|So many)\b"
)
"""Phrases that read like a translation."""


class Said(NamedTuple):
    """A text of a page, and its place."""

    where: str
    text: str


def list_options() -> dict[tuple[str, ...], set[str]]:
    """The options of each command, by the words that name it."""
    found: dict[tuple[str, ...], set[str]] = {}

    def walk(command: object, path: tuple[str, ...]) -> None:
        found[path] = {"--help"}.union(
            *((*option.opts, *option.secondary_opts) for option in getattr(command, "params", ()))
        )
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*path, name))

    walk(get_command(app), ())
    for command, text in (("lease", lease_help.HELP), ("exec", exec_help.HELP)):
        found[command,] |= set(re.findall(r"(?m)^  (--?[a-z-]+)", text))
    return found


COMMANDS = list_options()


def spans(page: Path) -> Iterator[Said]:
    """Each piece of code within the text of a page."""
    text = blank_blocks(page)
    for match in _SPAN.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Said(f"{page.relative_to(ROOT)}:{line}", match[1].replace("\\|", "|"))


def commands(page: Path) -> Iterator[Said]:
    """Each command line of ours that a page shows, without the program's name."""
    for block in list_blocks(page):
        joined = re.sub(r"\\\n\s*", " ", block.text)
        for line in joined.splitlines():
            for part in re.split(r"&&|\|", line.split(" #")[0]):
                if match := _PROMPT.match(part):
                    yield Said(block.place, (match[1] or "").strip())
    for where, text in spans(page):
        if text.startswith("tileyard "):
            yield Said(where, text.removeprefix("tileyard ").split("|")[0])


def complain(text: str) -> str:
    """What is wrong with a command line of ours, empty for nothing."""
    words = shlex.split(text.split(" -- ")[0], comments=True)
    path: tuple[str, ...] = ()
    while words and (*path, words[0]) in COMMANDS:
        path = (*path, words.pop(0))
    if words and not path and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        return f"there is no tileyard {words[0]}"
    named = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    unknown = sorted(named - COMMANDS[path])
    return f"tileyard {' '.join(path)} has no {', '.join(unknown)}" if unknown else ""


def test_commands_that_pages_show_exist() -> None:
    """Every subcommand and option of ``tileyard`` that is shown is one."""
    shown = [said for page in PAGES for said in commands(page)]
    expected: list[str] = []
    assert len(shown) > 50
    problems = [f"{where}: {found}" for where, text in shown if (found := complain(text))]
    assert problems == expected


def test_each_block_of_commands_says_whether_it_can_be_run() -> None:
    """Those in a shell's language have one mark, those in no language are none, and four in five are run."""
    blocks = [block for page in PAGES for block in list_blocks(page)]
    shells = [block for block in blocks if block.language in SHELL]
    wrong = [one.place for one in shells if len({*MARKS}.intersection(one.words)) != 1]
    prompt = re.compile(r"^(?:\$|make|pip|pytest|tileyard) ", re.MULTILINE)
    wrong += [one.place for one in blocks if not one.language and prompt.search(one.text)]
    assert not wrong
    assert sum("run" in block.words for block in shells) >= 0.8 * len(shells)


def test_odd_phrases_are_not_used() -> None:
    """Neither in pages nor in code: others say the same in plain English."""
    texts = (*PAGES, *(ROOT / "src").rglob("*.py"))
    found = [
        f"{path.relative_to(ROOT)}: {phrase}"
        for path in texts
        for phrase in _ODD.findall(path.read_text(encoding="utf-8"))
    ]
    assert not found


def test_commands_that_our_messages_name_exist() -> None:
    """Hints and docstrings that send people to a command name one."""
    said = [
        Said(str(path.relative_to(ROOT)), text)
        for path in sorted((ROOT / "src").rglob("*.py"))
        for text in re.findall(r"`{1,2}tileyard ([^`\n{]+)", path.read_text("utf-8"))
    ]
    expected: list[str] = []
    assert len(said) > 10
    assert [f"{path}: {found}" for path, text in said if (found := complain(text))] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tset examples", "there is no tileyard tset"),
        ("test a.toml --slot 2", "tileyard test has no --slot"),
        ("cache gc --max-size=1G --days 2", "tileyard cache gc has no --days"),
        ("lease --devices cuda -- ./run --fast", ""),
        ("tune a.py::gemm --no-check", ""),
        ("--help", ""),
    ],
)
def test_a_command_that_is_none_is_found(text: str, expected: str) -> None:
    """The checker itself tells right from wrong."""
    assert complain(text) == expected


def test_options_that_pages_name_exist() -> None:
    """An option that is named alone is ours, the plugin's, a benchmark's, or a known program's."""
    plugin = {"--tileyard", *(f"--tileyard-{name}" for name in OPTIONS)}
    known = plugin.union(*COMMANDS.values(), *OTHERS.values())
    scripts = "".join(path.read_text("utf-8") for path in ROOT.glob("benchmarks/*.py"))
    expected: list[str] = []
    unknown = []
    for page in PAGES:
        for where, text in spans(page):
            option = re.match(r"--?[A-Za-z][\w-]*(?=$|[ =])", text)
            if option and option[0] not in known and f'"{option[0]}"' not in scripts:
                unknown.append(f"{where}: {option[0]}")
    assert unknown == expected


def test_links_lead_somewhere() -> None:
    """A relative link ends at a file or folder of this repository, and at a heading where it names one."""
    expected: list[str] = []
    broken = []
    for page in PAGES:
        for target in _LINK.findall(blank_blocks(page)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            found = (page.parent / path).resolve() if path else page
            if not found.is_relative_to(ROOT) or not found.exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
            elif anchor and anchor not in anchors(found):
                broken.append(f"{page.relative_to(ROOT)}: no heading {target}")
    assert broken == expected


def anchors(page: Path) -> set[str]:
    """What headings are called in links."""
    headings = (re.sub(r"[`*]", "", text) for text in _HEADING.findall(blank_blocks(page)))
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def test_files_that_pages_name_exist() -> None:
    """A path below one of the repository's folders is there; ``a::b`` names something in it."""
    path = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./-]*")
    expected: list[str] = []
    missing = [
        f"{where}: {text}"
        for page in PAGES
        for where, text in spans(page)
        if path.fullmatch(text) and not (ROOT / text).exists() and not (page.parent / text).exists()
    ]
    assert missing == expected


def test_every_table_has_a_head() -> None:
    """Its columns are named: one without any is read as an empty row."""
    empty = re.compile(r"(?m)^\|(?: *\|)+ *\n\| *-")
    assert [page.name for page in PAGES if empty.search(page.read_text("utf-8"))] == []


def test_every_page_can_be_found() -> None:
    """The index links every page below ``docs/``."""
    index = ROOT / "docs" / "README.md"
    expected = {page for page in PAGES if page.is_relative_to(index.parent)} - {index}
    linked = {(index.parent / link).resolve() for link in _LINK.findall(blank_blocks(index))}
    assert expected - linked == set()


def test_every_room_is_on_the_map() -> None:
    """The rooms of the source, and no others, are in the table of the design."""
    text = (ROOT / "docs" / "design" / "README.md").read_text("utf-8")
    table = text.partition("## The rooms")[2].partition("## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name[:-1] for row in rows for name in _SPAN.findall(row) if name.endswith("/")}
    source = ROOT / "src" / "tileyard"
    folders = {path.parent.name for path in source.glob("*/__init__.py")}
    modules = {path.name for path in source.glob("*.py")} - {"__init__.py", "__main__.py"}
    expected = folders | modules
    assert named == expected


def test_every_outcome_is_told() -> None:
    """The table of outcomes has each of them once, in their order."""
    text = (ROOT / "docs" / "design" / "README.md").read_text("utf-8")
    table = text.partition("## Outcomes")[2].partition("\n## ")[0]
    expected = [outcome.value for outcome in Outcome]
    told = [row for row in re.findall(r"(?m)^\| `(\w+)` \|", table) if row in expected]
    assert told == expected


def test_what_is_unpickled_is_told() -> None:
    """The table of the page on security has each module that makes objects of pickles or the like."""
    text = (ROOT / "docs" / "design" / "security.md").read_text("utf-8")
    table = text.partition("## What is unpickled")[2].partition("\n## ")[0]
    told = set(re.findall(r"(?m)^\| `([\w/]+\.py)` \|", table))
    makes = re.compile(
        r"\b(?:pickle|cloudpickle|marshal|dill)\.(?:loads?|Unpickler)\b|allow_pickle=True"
        r"|\bfrom (?:pickle|marshal) import|\b(?:shelve|multiprocessing|ProcessPoolExecutor)\b"
    )
    source = ROOT / "src" / "tileyard"
    expected = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if makes.search(path.read_text("utf-8"))
    }
    assert told == expected


def test_the_pictures_second_revision_fits_the_example() -> None:
    """Each of its edits changes a line of examples/layers.py."""
    source = (ROOT / "examples" / "layers.py").read_text(encoding="utf-8")
    pairs = zip(source.splitlines(), edit(source).splitlines(), strict=True)
    assert sum(old != new for old, new in pairs) == len(EDITS)


def test_make_demo_installs_what_the_commands_of_the_readme_need() -> None:
    """GPU builds take an extra that tuning on a CPU does not; the GPU's host has an extra of its own."""
    readme = (ROOT / "README.md").read_text("utf-8")
    (demo,) = re.findall(
        r"(?m)^\$\(VENV\)/\.run:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text("utf-8")
    )
    extras = set(
        re.findall(r"pip install './tileyard\[([\w,]+)\]'", packages.INSTALL)[0].split(",")
    )
    assert re.search(r"(?m)^tileyard compile .* --target cuda:", readme)
    assert extras == set(re.findall(r"'\.\[([\w,]+)\]'", demo)[0].split(","))
    for page in (readme, (ROOT / "docs" / "how-to" / "compile-for-gpus.md").read_text("utf-8")):
        of_gpus = re.findall(r"```sh gpu\n(.*?)```", page, re.DOTALL)
        command = driver.INSTALL.partition(" beside")[0]
        assert any(command in block and "--from gemm.tyb" in block for block in of_gpus)
