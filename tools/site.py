"""What MkDocs does not do by itself for the site, as hooks: ``make site``.

It opens with the repository's README; the navigation is that of ``docs/README.md``, its page of all pages.
Files of the repository that pages link become pages. The references of the command line and of Python are
completed from the code.
"""

import ast
import inspect
import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from typer.main import get_command

import tileyard
import tileyard.testing
from tileyard.cli.main import app
from tileyard.verbs.exec import help as exec_help
from tileyard.verbs.lease import help as lease_help

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
INDEX, ALL_PAGES = DOCS / "README.md", "pages.md"
FRONT, FRONT_PAGE = ROOT / "README.md", "README.md"
LINK = re.compile(r"(!?)\[([^\]]+)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".yml": "yaml", ".toml": "toml", ".json": "json"}
ELSEWHERE = re.compile(r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*')
OF_TILELANGS_TUNER = ("AutoTuner", "autotune", "set_autotune_inputs")
"""Their source is read: importing it would take seconds."""


# ---- The pages -------------------------------------------------------------------------------------


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the navigation from the index: its first links, then a section for each of its headings."""
    head, *sections = re.split(r"(?m)^## ", INDEX.read_text("utf-8"))
    config.nav = [{"Tileyard": FRONT_PAGE}, *_list_pages(head), {"All pages": ALL_PAGES}]
    for section in sections:
        config.nav.append({section.partition("\n")[0]: [*_list_pages(section)]})
    return config


def _list_pages(text: str) -> Iterator[dict[str, str]]:
    for _, title, target in LINK.findall(text):
        page = _uri_of((DOCS / target).resolve())
        if page.endswith(".md") and not page.startswith("files/"):
            yield {title[0].upper() + title[1:]: page}


def _uri_of(path: Path) -> str:
    """Where a file of the repository is on the site; empty for a folder, which is not there."""
    if path.is_dir():
        return ""
    if path in (FRONT, INDEX):
        return FRONT_PAGE if path == FRONT else ALL_PAGES
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    name = path.relative_to(ROOT).as_posix()
    return name.lower() if name.endswith(".md") else f"files/{name}.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what pages link and what is not below ``docs/``."""
    waiting = [FRONT, *sorted(DOCS.rglob("*.md"))]
    files.append(File.generated(config, ALL_PAGES, content=INDEX.read_text("utf-8")))
    for page in waiting:
        for _, _, target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
            path = (page.parent / target.partition("#")[0]).resolve()
            uri = "" if ":" in target else _uri_of(path)
            if not uri or uri in files.src_uris:
                continue
            text = path.read_text("utf-8")
            if path.suffix == ".md":
                waiting.append(path)
            else:
                name = path.relative_to(ROOT)
                text = f"# {name}\n\n````{LANGUAGES[path.suffix]}\n{text}````\n"
            made = File.generated(config, uri, content=text)
            made.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(made)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Complete the references, and turn links into those of the site."""
    uri = page.file.src_uri
    if uri in GENERATED:
        markdown += "\n".join(GENERATED[uri]())
    if uri == FRONT_PAGE:
        markdown = FRONT.read_text("utf-8")
    elsewhere = (FRONT, INDEX, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md")
    origin = {_uri_of(path): path for path in elsewhere}.get(uri, DOCS / uri)

    def turn(match: re.Match[str]) -> str:
        image, text, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if not path or ":" in path:
            return match[0]
        found = (origin.parent / path).resolve()
        if not (to := _uri_of(found)):
            return text
        return f"{image}[{text}]({os.path.relpath(to, Path(uri).parent)}{hash_}{anchor})"

    parts, end = [], 0
    for fence in FENCE.finditer(markdown):
        # What follows the language is for the tests of the pages.
        block = re.sub(r"\A( *```\w*) .*", r"\1", fence[0])
        parts += [LINK.sub(turn, markdown[end : fence.start()]), block]
        end = fence.end()
    return "".join([*parts, LINK.sub(turn, markdown[end:])])


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> None:
    """Raise PluginError for a page that loads something from elsewhere."""
    if found := ELSEWHERE.findall(output):
        raise PluginError(f"{page.file.src_uri} loads {', '.join(found)}")


# ---- The command line ------------------------------------------------------------------------------


def list_commands() -> Iterator[str]:
    """The reference of each command, as lines of Markdown."""
    written = {"exec": exec_help.HELP, "lease": lease_help.HELP}

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[str]:  # noqa: ANN401 (typer hides its type)
        inner = getattr(command, "commands", {})
        if len(path) > 1:
            yield from ("", f"## {' '.join(path)}", "")
            if path[1] in written:
                yield from ("```text", written[path[1]].rstrip(), "```")
                return
            yield from _describe_command(command, path)
        for name, one in inner.items():
            yield from walk(one, (*path, name))

    yield from walk(get_command(app), ("tileyard",))


def _describe_command(command: Any, path: tuple[str, ...]) -> Iterator[str]:  # noqa: ANN401 (likewise)
    context = command.context_class(command, info_name=" ".join(path))
    words = " ".join(command.collect_usage_pieces(context))
    yield from ("```text", f"{' '.join(path)} {words}", "```", "", _as_markdown(command.help or ""))
    records = (param.get_help_record(context) for param in command.get_params(context))
    rows = [record for record in records if record and "--help" not in record[0]]
    shown = [(f"`{re.sub(' <[^>]*>', '', names)}`", text) for names, text in rows]
    yield from _draw_table(("option", "what it does"), shown)


# ---- Python ----------------------------------------------------------------------------------------


def list_names() -> Iterator[str]:
    """The reference of each public name, as lines of Markdown."""
    for module in (tileyard, tileyard.testing):
        for name in module.__all__:
            yield from ("", f"## {module.__name__}.{name}", "")
            if name in OF_TILELANGS_TUNER:
                yield _read_docstring("tileyard.api.autotune", name)
                continue
            thing = getattr(module, name)
            yield from _describe(thing, name)
            if not isinstance(thing, type):
                continue
            for member, value in vars(thing).items():
                inner = value.fget if isinstance(value, property) else getattr(thing, member)
                if not member.startswith("_") and inspect.isfunction(inner):
                    yield from ("", f"### {name}.{member}", "")
                    yield from _describe(
                        inner, member, is_called=inner is not getattr(value, "fget", None)
                    )


def _describe(thing: Any, name: str, *, is_called: bool = True) -> Iterator[str]:  # noqa: ANN401 - any thing
    text, options = re.match(
        r"(.*?)(?:\n(?:Options|Args):\n(.*))?\Z", inspect.getdoc(thing) or "", re.DOTALL
    ).groups()
    given = inspect.signature(thing).parameters
    if is_called:
        told = [*re.findall(r"(?m)^    (\w+):", options or "")]
        shown = [
            str(one.replace(annotation=one.empty))
            for one in given.values()
            if one.name not in ("self", "result", "settings")
            and not (one.name in told and one.kind is one.KEYWORD_ONLY)
        ]
        if told and any(
            given[one].kind is inspect.Parameter.KEYWORD_ONLY for one in told if one in given
        ):
            shown += ["**options"]
        yield from ("```python", f"{name}({', '.join(shown)})", "```", "")
    yield _as_markdown(text)
    rows = []
    for option, meaning in re.findall(r"(?ms)^    (\w+): (.*?)(?=^    \w|\Z)", options or ""):
        default = given[option].default if option in given else inspect.Parameter.empty
        rows.append(
            (
                f"`{option}`",
                "" if default in (inspect.Parameter.empty, None, "") else f"`{default!r}`",
                " ".join(meaning.split()),
            )
        )
    yield from _draw_table(("option", "default", "what it does"), rows)


def _read_docstring(module: str, name: str) -> str:
    spec = find_spec(module)
    tree = ast.parse(Path(spec.origin).read_text("utf-8"))
    for node in tree.body:
        if getattr(node, "name", "") == name:
            return _as_markdown(ast.get_docstring(node) or "")
    return f"TileLang's own `{name}`."


# ---- Markdown --------------------------------------------------------------------------------------


def _as_markdown(text: str) -> str:
    """A docstring, whose code and blocks of code are written as reStructuredText has them."""
    return re.sub(r"``([^`]+)``", r"`\1`", text).replace("::\n", ":\n")


def _draw_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    if not rows:
        return
    yield from ("", "| " + " | ".join(head) + " |", "| --- " * len(head) + "|")
    for row in rows:
        cells = (_as_markdown(cell).replace("|", "\\|") for cell in row)
        yield "| " + " | ".join(cells) + " |"


GENERATED = {"reference/commands.md": list_commands, "reference/python.md": list_names}
