"""Renders self-contained pages: one HTML file with its style, script and data, which loads nothing."""

import base64
import functools
import hashlib
import html
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tileyard.base.model import Record
from tileyard.show.words import UNSEEN, make_visible

FOLDER = Path(__file__).parent
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
BASE = ("assets/page.css", "assets/page.js")
"""What every page has, before the assets of its own."""


class Vendored(Record):
    """A file of others that is part of pages: its version, licence, origin, and SHA-256."""

    file: str
    version: str
    licence: str
    origin: str
    sha256: str


VENDORED = (
    Vendored(
        file="uPlot.iife.min.js",
        version="1.6.32",
        licence="MIT (uPlot.LICENSE)",
        origin="https://registry.npmjs.org/uplot/-/uplot-1.6.32.tgz",
        sha256="19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    ),
    Vendored(
        file="uPlot.min.css",
        version="1.6.32",
        licence="MIT (uPlot.LICENSE)",
        origin="https://registry.npmjs.org/uplot/-/uplot-1.6.32.tgz",
        sha256="df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    ),
)


def render(
    template: str, *, assets: Sequence[str] = (), is_served: bool = False, **data: object
) -> str:
    """The page of a template, with these assets (``assets/x.js``, ``vendor/y.css``) after those of every
    page. Every value is shown as text, but for Markup. A page that ``is_served`` may ask its own server.
    """
    texts = {name: _read(name) for name in (*BASE, *assets)}
    style = "\n".join(text for name, text in texts.items() if name.endswith(".css"))
    script = "\n".join(text for name, text in texts.items() if name.endswith(".js"))
    # From constants of ours alone, so that they can be written as they are.
    parts = {"style": Markup(style), "script": Markup(script)}
    return (
        _environment()
        .get_template(template)
        .render(policy=_make_policy(style, script, is_served=is_served), **parts, **data)
    )


def render_part(template: str, **data: object) -> str:
    """A part of a page, for one that is open already."""
    return _environment().get_template(template).render(**data)


def read_policy(page: str) -> str:
    """The content security policy of a rendered page, to be sent with it."""
    found = _POLICY.search(page)
    return html.unescape(found[1]) if found else "default-src 'none'"


def encode(value: object) -> Markup:
    """Any record as JSON for a ``<script type="application/json">``, which no text within it can end."""
    text = msgspec.json.encode(value).decode().replace("<", "\\u003c")
    # Such characters are only in strings, where a second backslash makes their escape a text.
    return Markup(UNSEEN.sub(lambda found: f"\\{make_visible(found[0])}", text))


def _make_policy(style: str, script: str, *, is_served: bool) -> str:
    """Nothing is loaded, and only the page's own style and script are used."""
    connect = "connect-src 'self'; " if is_served else ""
    return (
        f"default-src 'none'; style-src {_name(style)}; script-src {_name(script)}; img-src data:; "
        f"{connect}base-uri 'none'; form-action 'none'"
    )


def _name(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


@functools.cache
def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8").strip()


@functools.cache
def _environment() -> Environment:
    made = Environment(
        autoescape=True,
        finalize=_show,
        loader=FileSystemLoader(FOLDER / "templates"),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    made.filters["encode"] = encode
    return made


def _show(value: object) -> object:
    """Foreign text without characters that are invisible or turn the direction of what follows."""
    return make_visible(value) if type(value) is str else value
