"""How programs that build and test are called: names, targets, options, and what runners and repositories are."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

BUILDERS = {
    "cargo": ("build", "install", "bench"), "go": ("build", "install"), "bazel": ("build",), "bazelisk": ("build",),
    "npm": ("run build", "run-script build"), "yarn": ("build",), "pnpm": ("build", "run build"),
    "gradle": ("build", "assemble"), "gradlew": ("build", "assemble"), "mvn": ("package", "install"), "meson": ("compile",),
}  # fmt: skip
TESTERS = {
    "cargo": ("test", "nextest"), "go": ("test",), "bazel": ("test",), "bazelisk": ("test",), "npm": ("test", "run test"),
    "yarn": ("test",), "pnpm": ("test",), "gradle": ("test", "check"), "gradlew": ("test", "check"), "mvn": ("test", "verify"),
    "meson": ("test",), "tox": ("",), "nox": ("",), "tileyard": ("test",),
}  # fmt: skip
REMOTE = re.compile(r"(?:https?://|git@|ssh://)(?:[^/:]*[/:])(.*?)(?:\.git)?/?")
_LOOKED_UP = re.compile(r"\$\(git ls-remote \S+ (?:\S+ )*?(\S+?)(?: \|.*)?\)", re.DOTALL)


def name_of(argv: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """A program by its name alone, with the rest; a module of Python stands for itself."""
    if not argv:
        return "", ()
    name = re.sub(r"(?<=^python)[\d.]+$|(?<=^pip)[\d.]+$|\.exe$", "", Path(argv[0]).name)
    words = tuple(argv[1:])
    if re.search(r"PYTHON\w*\}?$", argv[0]):
        name = "python"
    if name == "python" and "-m" in words[:3]:
        at = words.index("-m")
        return (words[at + 1] if len(words) > at + 1 else ""), words[at + 2 :]
    if name == "uv" and words[:1] == ("pip",):
        return "pip", words[1:]
    if name in ("uv", "poetry", "pipx", "hatch", "coverage") and words[:1] == ("run",):
        return name_of(
            [word for word in words[1:] if word != "-m"] if name == "coverage" else words[1:]
        )
    if name in ("bash", "sh") and words and not words[0].startswith("-"):
        return Path(words[0]).name, words[1:]
    return name, words


def options_of(words: Sequence[str]) -> dict[str, str]:
    """Each word with the one behind it: an option with its value."""
    return dict(pairwise(words))


def folder_of(name: str, words: Sequence[str]) -> str:
    """The folder that a build program works in."""
    joined = next((word[2:] for word in words if word.startswith("-C") and len(word) > 2), ".")
    return options_of(words).get("--build" if name == "cmake" else "-C", joined)


def place_of(name: str, words: Sequence[str]) -> str:
    """The folder of what a package manager builds or tests, as its option says."""
    option = {
        "cargo": "--manifest-path",
        "npm": "--prefix",
        "yarn": "--cwd",
        "pnpm": "-C",
        "mvn": "-f",
    }
    found = options_of([part for word in words for part in word.split("=", 1)]).get(
        option.get(name, ""), "."
    )
    return str(Path(found).parent) if found.endswith((".toml", ".xml")) else found


def targets_of(name: str, words: Sequence[str]) -> list[str]:
    """The targets among the arguments of a build program."""
    if name == "cmake":
        if "--build" not in words:
            return []
        rest = list(words[words.index("--target") + 1 :]) if "--target" in words else []
        end = next((at for at, word in enumerate(rest) if word.startswith("-")), len(rest))
        return rest[:end]
    found = []
    for before, word in pairwise(("", *words)):
        if (
            before not in ("-C", "-j", "-f", "-k", "-l")
            and not word.startswith("-")
            and "=" not in word
            and "$(" not in word
        ):
            found.append(word)
    return found


def flags_of(words: Sequence[str]) -> dict[str, str]:
    """``-DNAME=VALUE`` and the options that say how."""
    found = {}
    for before, word in pairwise(("", *words)):
        text = (
            word[2:] if word.startswith("-D") and len(word) > 2 else word if before == "-D" else ""
        )
        if text:
            key, _, value = text.partition("=")
            found[key.partition(":")[0]] = value
        elif before in ("-G", "-C", "--preset"):
            found[before] = word
        elif word.startswith("--") and "=" in word:
            found[word.partition("=")[0]] = word.partition("=")[2]
    return found


def platform_of(runs_on: str) -> str:
    """``linux x64`` and the like, as labels of runners say it."""
    words = runs_on.lower()
    system = next(
        (name for mark, name in (("windows", "windows"), ("macos", "macos")) if mark in words),
        "linux",
    )
    is_arm = re.search(
        r"arm64|aarch64|-arm\b|macos-(?:1[4-9]|[2-9]\d|latest)(?!-intel|\d|-large)", words
    )
    return f"{system} {'arm64' if is_arm else 'x64'}"


def name_repository(url: str) -> str:
    """``owner/name`` of an address."""
    found = REMOTE.fullmatch(url)
    return (found[1] if found else url).lower()


def name_ref(text: str) -> str:
    """A commit, tag or branch; of one that a command looks up, what it asks for."""
    found = _LOOKED_UP.fullmatch(text)
    name = found[1].strip("\"'") if found else text
    return re.sub(r"^(refs/(heads|tags)/|origin/)", "", name) or "HEAD"
