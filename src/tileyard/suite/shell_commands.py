"""The commands of a shell script, as far as they can be told without running it.

Variables with known values are filled in, ``cd`` is followed, functions and loops over plain words are
entered, and all branches are taken; what is known only in a run stays as it is written. One module because
words are filled in with what the walk has seen so far.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from tileyard.model import Record

DEEPEST = 8
"""Functions within functions, and scripts within arguments."""
MOST_COMMANDS = 2000
MOST_BODIES = 2000
"""Loops within loops, and functions that call themselves, have an end here."""
_WRAPPERS = frozenset({"sudo", "env", "time", "exec", "nice", "nohup", "command", "stdbuf", "eval"})
_SHELLS = frozenset({"bash", "sh", "dash", "zsh"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_EXPRESSION = re.compile(r"\$\{\{.*?\}\}", re.DOTALL)
_MARK = "EXPRESSION_"
_MARKED = re.compile(rf"{_MARK}(\d+)_")
_BRANCHES = (
    "if_statement",
    "elif_clause",
    "else_clause",
    "case_statement",
    "case_item",
    "while_statement",
)


class ShellCommand(Record):
    """One simple command. ``env`` are the variables set for it alone; ``line`` counts from 0."""

    argv: tuple[str, ...]
    cwd: str
    line: int
    env: dict[str, str] = {}


@dataclass
class ShellScript:
    """What a script does: its commands, and what it writes for later steps into GITHUB_ENV and GITHUB_OUTPUT."""

    commands: list[ShellCommand] = field(default_factory=list)
    exports: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    entered: int = 0
    """How many bodies of functions and loops have been entered."""


def read_script(text: str, variables: Mapping[str, str], cwd: str) -> ShellScript:
    """The commands of a script that is run in ``cwd`` with these variables."""
    script = ShellScript()
    state = _State({name: [value] for name, value in variables.items()}, cwd)
    expressions = list(dict.fromkeys(_EXPRESSION.findall(text)))
    for number, one in enumerate(expressions):  # no shell ever sees these
        text = text.replace(one, f"{_MARK}{number}_")

    def put_back(word: str) -> str:
        return _MARKED.sub(lambda found: expressions[int(found[1])], word)

    _Walk(script, 0, 0).walk(_parse(text), state)
    return ShellScript(
        commands=[
            ShellCommand(
                argv=tuple(map(put_back, one.argv)),
                cwd=put_back(one.cwd),
                line=one.line,
                env={name: put_back(value) for name, value in one.env.items()},
            )
            for one in script.commands
        ],
        exports={name: put_back(value) for name, value in script.exports.items()},
        outputs={name: put_back(value) for name, value in script.outputs.items()},
    )


def _parse(text: str) -> Node:
    return Parser(Language(tree_sitter_bash.language())).parse(text.encode()).root_node


@dataclass
class _State:
    """Variables, each a list of words, and where the shell is."""

    variables: dict[str, list[str]]
    cwd: str
    exported: set[str] = field(default_factory=set)
    functions: dict[str, Node] = field(default_factory=dict)

    def copy(self) -> "_State":
        return _State(dict(self.variables), self.cwd, set(self.exported), dict(self.functions))


@dataclass
class _Walk:
    script: ShellScript
    depth: int
    line: int
    sink: dict[str, str] | None = None
    """What is written to at present, if that is a file of later steps."""
    is_certain: bool = True

    def walk(self, node: Node, state: _State) -> None:
        """Take in a node; ``state`` is changed as the shell would change it."""
        match node.type:
            case "command":
                self._command(node, state)
            case "variable_assignment":
                self._assign(node, state)
            case "declaration_command":
                for child in node.named_children:
                    self.walk(child, state)
                    if node.children[0].type == "export":
                        state.exported.add(_text(child).partition("=")[0])
            case "function_definition":
                name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
                if name is not None and body is not None:
                    state.functions[_text(name)] = body
            case "redirected_statement":
                self._redirect(node, state)
            case "subshell" | "pipeline":
                self._children(node, state.copy())
            case "for_statement":
                self._loop(node, state)
            case kind if kind in _BRANCHES:
                self._branch(node, state)
            case "test_command" | "comment" | "heredoc_body" | "command_substitution":
                pass
            case _:
                self._children(node, state)

    def _children(self, node: Node, state: _State) -> None:
        for child in node.named_children:
            self.walk(child, state)

    def _branch(self, node: Node, state: _State) -> None:
        """A body that may run or not: what it sets is known no more; a list that it adds to has what it adds."""
        inner, was_certain = state.copy(), self.is_certain
        self.is_certain = False
        self._children(node, inner)
        self.is_certain = was_certain
        for name in {*inner.variables, *state.variables}:
            after, before = inner.variables.get(name), state.variables.get(name)
            if after and before and len(after) > len(before) and after[: len(before)] == before:
                state.variables[name] = after
            elif after != before:
                state.variables.pop(name, None)

    def _loop(self, node: Node, state: _State) -> None:
        name, *rest = node.named_children
        words = [word for child in rest[:-1] for word in self._words(child, state)]
        for word in words if all(map(_is_known, words)) else ():
            if not self._enter():
                return
            state.variables[_text(name)] = [word]
            self.walk(rest[-1], state)
        if not all(map(_is_known, words)):
            state.variables.pop(_text(name), None)
            self.walk(rest[-1], state)

    def _enter(self) -> bool:
        self.script.entered += 1
        return self.script.entered <= MOST_BODIES

    def _redirect(self, node: Node, state: _State) -> None:
        before = self.sink
        for child in node.children_by_field_name("redirect"):
            target = _text(child)
            for name, sink in (
                ("GITHUB_ENV", self.script.exports),
                ("GITHUB_OUTPUT", self.script.outputs),
            ):
                if child.type == "file_redirect" and name in target:
                    self.sink = sink
        body = node.child_by_field_name("body")
        if body is not None:
            self.walk(body, state)
        self.sink = before

    def _assign(self, node: Node, state: _State) -> None:
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is None:
            return
        words = [] if value is None else self._words(value, state)
        if value is None:
            words = [""]
        name = _text(target)
        if any(child.type == "+=" for child in node.children):
            before = state.variables.get(name, [])
            is_list = value is not None and value.type == "array"
            words = [*before, *words] if is_list else ["".join((*before, *words))]
        state.variables[name] = words

    def _command(self, node: Node, state: _State) -> None:
        env: dict[str, str] = {}
        argv: list[str] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                own = state.copy()
                self._assign(child, own)
                name = _text(child.named_children[0])
                env[name] = " ".join(own.variables.get(name, [""]))
            elif not child.type.endswith("redirect"):
                argv += self._words(child, state)
        env = {
            name: " ".join(state.variables[name])
            for name in sorted(state.exported)
            if name in state.variables
        } | env
        self._run(argv, env, state, self.line + node.start_point[0])

    def _run(self, argv: list[str], env: dict[str, str], state: _State, line: int) -> None:
        argv = _unwrap(argv, env)
        if not argv or len(self.script.commands) >= MOST_COMMANDS:
            return
        name, *rest = argv
        if name in ("cd", "pushd") and rest:
            state.cwd = join_path(state.cwd, rest[-1])
        elif name == "shift":
            parameters = state.variables.get("@", [])
            self._bind(state, parameters[int(rest[0]) if rest and rest[0].isdigit() else 1 :])
        elif name in state.functions:
            if self.depth >= DEEPEST or not self._enter():
                return
            inner = state.copy()
            self._bind(inner, rest)
            _Walk(self.script, self.depth + 1, self.line, self.sink, self.is_certain).walk(
                state.functions[name], inner
            )
        elif self.sink is not None and name in ("echo", "printf"):
            key, equals, value = (rest[-1] if rest else "").partition("=")
            if equals and self.is_certain:
                self.sink[key] = value
            else:
                self.sink.pop(key, None)
        elif inner_text := _find_script(argv):
            if self.depth < DEEPEST:
                walk = _Walk(self.script, self.depth + 1, line)
                walk.walk(_parse(inner_text), state.copy())
        else:
            self.script.commands.append(
                ShellCommand(argv=tuple(argv), cwd=state.cwd, line=line, env=env)
            )

    @staticmethod
    def _bind(state: _State, words: list[str]) -> None:
        state.variables.update({str(number): [word] for number, word in enumerate(words, 1)})
        state.variables["@"] = words

    # ---- words ------------------------------------------------------------------------------------

    def _words(self, node: Node, state: _State) -> list[str]:
        """What a word becomes: one word, or those of a list."""
        match node.type:
            case "array":
                return [word for child in node.named_children for word in self._words(child, state)]
            case "string" | "command_name" | "expansion" | "simple_expansion":
                inner = [child for child in node.named_children if child.type != "string_content"]
                if node.type in ("string", "command_name"):
                    if len(inner) == 1 and _text(inner[0]) == _text(node).strip('"'):
                        return self._words(inner[0], state)
                    return [self._join(node, state)]
                return self._expand(node, state)
            case "concatenation" | "command_substitution":
                return [self._join(node, state)]
            case "raw_string" | "ansi_c_string":
                return [_text(node).lstrip("$")[1:-1]]
            case "word":
                return [re.sub(r"\\(.)", r"\1", _text(node).replace("\\\n", ""))]
            case _:
                return [_text(node)]

    def _join(self, node: Node, state: _State) -> str:
        """The text of a node with its parts filled in, without its quotes."""
        if node.type == "string":
            data, at, end = node.text or b"", node.start_byte + 1, node.end_byte - 1
        else:
            data, at, end = node.text or b"", node.start_byte, node.end_byte
        parts = []
        for child in node.named_children:
            parts.append(data[at - node.start_byte : child.start_byte - node.start_byte].decode())
            if child.type == "string_content":
                parts.append(
                    re.sub(r'\\([$`"\\\n])', lambda m: "" if m[1] == "\n" else m[1], _text(child))
                )
            elif child.type in (
                "command",
                "pipeline",
                "list",
                "test_command",
                "redirected_statement",
            ):
                parts.append(self._join(child, state))
            else:
                parts.append(" ".join(self._words(child, state)))
            at = child.end_byte
        return "".join((*parts, data[at - node.start_byte : end - node.start_byte].decode()))

    def _expand(self, node: Node, state: _State) -> list[str]:
        """``$X``, ``${X}``, ``${X:-y}``, ``${X[@]}``; others stay as they are."""
        children = node.named_children
        operator = next(
            (one.type for one in node.children if one.type[:1] in ":#%/^,+-" and not one.is_named),
            "",
        )
        if not children or (node.children[1].type in ("#", "!")):
            return [_text(node)]
        first = children[0]
        name = _text(first.named_children[0] if first.type == "subscript" else first)
        value = [state.cwd] if name == "PWD" else state.variables.get(name)
        is_list = first.type == "subscript" or name == "@"
        if operator in (":-", "-") and (value is None or value == [""]):
            return [word for child in children[1:] for word in self._words(child, state)] or [""]
        if operator in (":+", "+") and len(children) > 1:
            return [""] if value in (None, [""]) else self._words(children[1], state)
        if value is None or operator not in ("", ":-", "-", ":?"):
            return [_text(node)]
        return value if is_list else [value[0] if value else ""]


def _unwrap(argv: list[str], env: dict[str, str]) -> list[str]:
    """The command behind ``sudo``, ``env A=b``, ``timeout 60`` and the like."""
    while argv and (argv[0] in _WRAPPERS or argv[0] == "timeout" or _ASSIGNMENT.match(argv[0])):
        if argv[0] == "command" and argv[1:2] == ["-v"]:
            return []
        first, argv = argv[0], argv[1:]
        if _ASSIGNMENT.match(first):
            env[first.partition("=")[0]] = first.partition("=")[2]
        while first == "env" and argv[:1] == ["-u"]:
            argv = argv[2:]
        while first != "eval" and argv and argv[0].startswith("-"):
            argv = argv[1:]
        if first == "timeout":
            argv = argv[1:]
    return argv


def _find_script(argv: list[str]) -> str:
    """The script among the arguments: behind ``sh -c``, or behind ``--run`` of a queue."""
    for at, word in enumerate(argv[:-1]):
        is_shell = os.path.basename(argv[0]) in _SHELLS and re.fullmatch(r"-[a-z]*c", word)  # noqa: PTH119
        if is_shell or (word == "--run" and " " in argv[at + 1]):
            return argv[at + 1]
    return ""


def _is_known(word: str) -> bool:
    return "$" not in word and "`" not in word and "*" not in word


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def join_path(folder: str, path: str) -> str:
    """A path from a folder, either of which may begin with what only a run knows."""
    return os.path.normpath(path if path.startswith(("$", "~")) else os.path.join(folder, path))  # noqa: PTH118


def unknown_names(text: str) -> Iterator[str]:
    """The variables in a text that could not be filled in."""
    yield from dict.fromkeys(re.findall(r"\$\{?([A-Za-z_]\w*)", text))
