"""Where checkouts lie in a job, so that the same tree has the same name in every job, wherever it lies."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tileyard.suite.shell_commands import join_path
from tileyard.suite.workflow_programs import REMOTE, name_ref, name_repository, options_of


@dataclass
class Checkouts:
    """Those of a job so far. ``aliases`` are other places of the repository that lies at the root."""

    root: str
    aliases: list[str] = field(default_factory=list)
    sources: dict[str, list[str]] = field(default_factory=dict)
    """For each folder with another checkout: which repository, and at which commit."""
    fetched: dict[str, str] = field(default_factory=dict)

    def follow_action(self, options: Mapping[str, str]) -> None:
        """What ``actions/checkout`` with these options adds."""
        path = join_path(self.root, options.get("path", ""))
        repository = options.get("repository", "")
        if repository and "github." not in repository:
            self.sources[path] = [repository.lower(), options.get("ref", "")]
        elif path != self.root and "sparse-checkout" not in options:
            self.aliases.append(path)

    def follow_git(self, words: list[str], cwd: str) -> None:
        """Where other checkouts lie, and at which commit."""
        while words[:1] in (["-C"], ["-c"]):
            cwd = self.join(cwd, words[1]) if words[0] == "-C" else cwd
            words = words[2:]
        verb, plain = (
            words[0] if words else "",
            [word for word in words[1:] if not word.startswith("-")],
        )
        options = options_of(words)
        if verb == "clone":
            at = next((i for i, word in enumerate(plain) if REMOTE.fullmatch(word)), None)
            if at is not None:
                folder = plain[at + 1] if len(plain) > at + 1 else Path(plain[at]).stem
                ref = options.get("--branch", options.get("-b", ""))
                self.sources[self.join(cwd, folder)] = [name_repository(plain[at]), ref]
        elif verb == "remote" and len(plain) == 3:
            self.sources[cwd] = [name_repository(plain[2]), self.sources.get(cwd, ["", ""])[1]]
        elif verb == "fetch" and len(plain) >= 2:
            self.fetched[cwd] = plain[-1]
        elif verb == "worktree" and plain[:1] == ["add"] and len(plain) > 2:
            ref = self.fetched.get(cwd, plain[2]) if plain[2] == "FETCH_HEAD" else plain[2]
            self.sources[self.join(cwd, plain[1])] = ["this repository", ref]
        elif verb in ("checkout", "reset", "switch") and plain and cwd in self.sources:
            ref = self.fetched.get(cwd, plain[-1]) if plain[-1] == "FETCH_HEAD" else plain[-1]
            self.sources[cwd][1] = ref

    def join(self, folder: str, path: str) -> str:
        """A path from a folder, at the place where the repository lies."""
        return self.settle(join_path(folder, path))

    def settle(self, text: str) -> str:
        """A text in which the repository lies at the root, wherever it was checked out to."""
        for path in self.aliases:
            text = re.sub(rf"{re.escape(path)}(?![\w.-])", self.root, text)
        return text

    def name_tree(self, path: str, *, keep: bool = False) -> str:
        """A path as part of the checkout that it lies in, the same in every job."""
        for folder in sorted(self.sources, key=len, reverse=True):
            if path == folder or path.startswith(f"{folder}/"):
                name, ref = self.sources[folder]
                inner = path[len(folder) + 1 :]
                return f"{name}@{name_ref(ref)}" + (f":{inner}" if inner else "")
        if path == self.root:
            return "."
        if path.startswith(f"{self.root}/"):
            return path[len(self.root) + 1 :]
        return path if keep or path else "."
