"""Extracts the commands of a shell script, as far as they are known without running it.

Variables with known values are filled in, ``cd`` and functions are followed, and each branch and loop
body is taken once. What is known only in a run stays as written.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

DEEPEST = 8
"""Maximum depth of functions within functions, and of scripts within arguments."""
LONGEST = 60
"""Characters of a condition that are shown."""
MOST_COMMANDS = 2000
"""Maximum number of commands; stops functions that call each other many times."""
_WRAPPERS = {"sudo", "env", "time", "exec", "nice", "nohup", "command", "stdbuf", "eval", "timeout"}
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_EXPRESSION = re.compile(r"\$\{\{.*?\}\}", re.DOTALL)
_MARK = re.compile(r"EXPRESSION_(\d+)_")
_MAYBE = re.compile(r"(if|elif|case|for|while)_\w+|case_item|else_clause")


@dataclass
class ShellCommand:
    """One simple command. ``env`` is set for it alone; ``line`` counts from 0. ``conditions`` are the parts
    of the script by which it may not run, or its failure may not count.
    """

    argv: list[str]
    cwd: str
    line: int
    env: dict[str, str] = field(default_factory=dict)
    conditions: tuple[str, ...] = ()


@dataclass
class ShellScript:
    """The effects of a script: commands, and output for later steps in GITHUB_ENV and GITHUB_OUTPUT."""

    commands: list[ShellCommand] = field(default_factory=list)
    exports: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    entered: int = 0


def read_script(text: str, variables: Mapping[str, str], cwd: str) -> ShellScript:
    """The commands of a script that runs in ``cwd`` with these variables."""
    script = ShellScript()
    expressions = list(dict.fromkeys(_EXPRESSION.findall(text)))
    for number, one in enumerate(expressions):  # these never reach a shell
        text = text.replace(one, f"EXPRESSION_{number}_")

    def show(words: list[str]) -> list[str]:
        return [_MARK.sub(lambda found: expressions[int(found[1])], word) for word in words]

    state = _State({name: [value] for name, value in variables.items()}, cwd)
    _Walk(script).walk(_parse(text), state)
    for one in script.commands:
        one.argv, (one.cwd,) = show(one.argv), show([one.cwd])
        one.conditions = tuple(show([*one.conditions]))
        one.env = dict(zip(one.env, show([*one.env.values()]), strict=True))
    for told in (script.exports, script.outputs):
        told |= dict(zip(told, show([*told.values()]), strict=True))
    return script


def join_path(folder: str, path: str) -> str:
    """A path relative to a folder; either may begin with a part that only a run knows."""
    return os.path.normpath(
        path if path.startswith(("$", "~")) else os.path.join(folder, path)  # noqa: PTH118
    )


@dataclass
class _State:
    """Variables, each a list of words, and the shell's directory."""

    variables: dict[str, list[str]]
    cwd: str
    exported: frozenset[str] = frozenset()
    functions: dict[str, Node] = field(default_factory=dict)

    def copy(self) -> "_State":
        return replace(self, variables=dict(self.variables))

    def bind(self, words: list[str]) -> None:
        self.variables |= {str(at): [word] for at, word in enumerate(words, 1)} | {"@": words}


@dataclass
class _Walk:
    script: ShellScript
    depth: int = 0
    line: int = 0
    sink: dict[str, str] | None = None
    """The current output, if it goes to a file of later steps."""
    conditions: tuple[str, ...] = ()

    def walk(self, node: Node, state: _State) -> None:
        """Process a node; ``state`` is changed as the shell would change it."""
        match node.type:
            case "command":
                self._command(node, state)
            case "variable_assignment":
                self._assign(node, state)
            case "function_definition":
                name, *_, body = node.named_children
                state.functions = state.functions | {_text(name): body}
            case "redirected_statement":
                targets = "".join(map(_text, node.children_by_field_name("redirect")))
                sinks = {"GITHUB_ENV": self.script.exports, "GITHUB_OUTPUT": self.script.outputs}
                found = (sink for name, sink in sinks.items() if name in targets)
                done = node.child_by_field_name("body")
                if done is not None:
                    replace(self, sink=next(found, self.sink)).walk(done, state)
            case "subshell" | "pipeline":
                self._children(node, state.copy())
            case kind if _MAYBE.fullmatch(kind):
                self._branch(node, state)
            case "list" if any(child.type == "||" for child in node.children):
                replaced = self._given(f"|| {_text(node.named_children[-1])}")
                for child in node.named_children:
                    replaced.walk(child, state)
            case "test_command" | "comment" | "heredoc_body" | "command_substitution":
                pass
            case kind:
                self._children(node, state)
                if kind == "declaration_command" and node.children[0].type == "export":
                    state.exported |= {_text(one).split("=")[0] for one in node.named_children}

    def _children(self, node: Node, state: _State) -> None:
        for child in node.named_children:
            self.walk(child, state)

    def _branch(self, node: Node, state: _State) -> None:
        """A body that may run or not: variables that it sets become unknown; extended lists stay extended."""
        inner = state.copy()
        for name in [_text(node.named_children[0])] if node.type == "for_statement" else ():
            inner.variables.pop(name, None)
        first = _text(node.child_by_field_name("condition") or node.named_children[0])
        is_list = node.type in ("for_statement", "case_item", "else_clause", "elif_clause")
        walk = self if is_list else self._given(f"{node.type.partition('_')[0]} {first}")
        for child in node.named_children:
            walk.walk(child, inner)
        for name in {*inner.variables, *state.variables}:
            after, before = inner.variables.get(name), state.variables.get(name)
            if after and before and len(after) > len(before) and after[: len(before)] == before:
                state.variables[name] = after
            elif after != before:
                state.variables.pop(name, None)

    def _given(self, what: str) -> "_Walk":
        """For what runs, or fails the script, only under a condition; one that ends the script fails it."""
        if what.startswith("||") and re.search(r"\bexit\b", what):
            return self
        line = " ".join(what.split())
        return replace(self, conditions=(*self.conditions, f"the script's {line[:LONGEST]}"))

    def _assign(self, node: Node, state: _State) -> None:
        target, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if target is not None:
            words = [""] if value is None else self._words(value, state)
            if any(child.type == "+=" for child in node.children):
                before = state.variables.get(_text(target), [])
                is_list = value is not None and value.type == "array"
                words = [*before, *words] if is_list else ["".join((*before, *words))]
            state.variables[_text(target)] = words

    def _command(self, node: Node, state: _State) -> None:
        own = _State({name: state.variables.get(name, [""]) for name in sorted(state.exported)}, "")
        argv: list[str] = []
        for child in node.named_children:
            if child.type == "variable_assignment":
                alone = state.copy()
                self._assign(child, alone)
                name = _text(child.named_children[0])
                own.variables[name] = alone.variables.get(name, [""])
            elif not child.type.endswith("redirect"):
                argv += self._words(child, state)
        env = {name: " ".join(words) for name, words in own.variables.items()}
        argv, line = _unwrap(argv, env), self.line + node.start_point[0]
        self.script.entered += 1
        if not argv or self.script.entered > MOST_COMMANDS:
            return
        if argv[0] in ("cd", "pushd") and argv[1:]:
            state.cwd = join_path(state.cwd, argv[-1])
        elif argv[0] == "shift":
            count = int(argv[1]) if argv[1:] and argv[1].isdigit() else 1
            state.bind(state.variables.get("@", [])[count:])
        elif argv[0] in state.functions:
            inner = state.copy()
            inner.bind(argv[1:])
            if self.depth < DEEPEST:
                replace(self, depth=self.depth + 1).walk(state.functions[argv[0]], inner)
        elif self.sink is not None and argv[0] in ("echo", "printf"):
            key, equals, value = argv[-1].partition("=")
            if equals and not self.conditions:
                self.sink[key] = value
            else:
                self.sink.pop(key, None)
        elif (text := _find_script(argv)) and self.depth < DEEPEST:
            inside = replace(self, depth=self.depth + 1, line=line, sink=None)
            inside.walk(_parse(text), state.copy())
        else:
            found = ShellCommand(argv, state.cwd, line, env, self.conditions)
            self.script.commands.append(found)

    def _words(self, node: Node, state: _State) -> list[str]:
        match node.type:
            case "array":
                return [word for child in node.named_children for word in self._words(child, state)]
            case "string" | "command_name" if len(node.named_children) == 1 and (
                _text(node.named_children[0]) == _text(node).strip('"')
            ):
                return self._words(node.named_children[0], state)
            case "expansion" | "simple_expansion":
                return self._expand(node, state)
            case "raw_string" | "ansi_c_string":
                return [_text(node).lstrip("$")[1:-1]]
            case "string_content":
                return [re.sub(r'\\([$`"\\])|\\\n', r"\1", _text(node))]
            case "word":
                return [re.sub(r"\\(.)", r"\1", _text(node).replace("\\\n", ""))]
            case _:
                return [self._join(node, state)]

    def _join(self, node: Node, state: _State) -> str:
        """The text of a node with its parts filled in, without its quotes."""
        data, quote = node.text or b"", 1 if node.type == "string" else 0
        at, parts = quote, list[str]()
        for child in node.named_children:
            start = child.start_byte - node.start_byte
            parts += [data[at:start].decode(), " ".join(self._words(child, state))]
            at = child.end_byte - node.start_byte
        return "".join((*parts, data[at : len(data) - quote].decode()))

    def _expand(self, node: Node, state: _State) -> list[str]:
        """``$X``, ``${X}``, ``${X:-y}``, ``${X[@]}``; others stay unchanged."""
        first, *rest = node.named_children or [node]
        signs = {child.type for child in node.children if not child.is_named} - {"$", "${", "}"}
        name = _text(first.named_children[0] if first.type == "subscript" else first)
        value = [state.cwd] if name == "PWD" else state.variables.get(name)
        if signs & {":-", "-"} and value in (None, [""]):
            return [word for child in rest for word in self._words(child, state)] or [""]
        if value is None or signs - {":-", "-", ":?"}:
            return [_text(node)]
        return value if first.type == "subscript" or name == "@" else [value[0] if value else ""]


def _parse(text: str) -> Node:
    return Parser(Language(tree_sitter_bash.language())).parse(text.encode()).root_node


def _text(node: Node) -> str:
    return (node.text or b"").decode()


def _unwrap(argv: list[str], env: dict[str, str]) -> list[str]:
    """The command that follows ``sudo``, ``env A=b``, ``timeout 60`` and the like."""
    while argv and (argv[0] in _WRAPPERS or _ASSIGNMENT.match(argv[0])):
        if argv[:2] == ["command", "-v"]:
            return []
        first, argv = argv[0], argv[1:]
        if found := _ASSIGNMENT.match(first):
            env[found[1]] = found[2]
        while first != "eval" and argv and argv[0].startswith("-"):
            argv = argv[2 if argv[0] == "-u" and first == "env" else 1 :]
        argv = argv[1:] if first == "timeout" else argv
    return argv


def _find_script(argv: list[str]) -> str:
    """The script among the arguments: after ``sh -c``, or after ``--run`` of a queue."""
    for before, word in pairwise(argv):
        is_shell = re.fullmatch(r"(.*/)?(ba|da|z)?sh -[a-z]*c", f"{argv[0]} {before}")
        if is_shell or (before == "--run" and " " in word):
            return word
    return ""
