"""The commands of a script, told without running it."""

import pytest

from tileyard.verbs.ci.plan.shell_commands import ShellScript, read_script


def read(text: str, **variables: str) -> ShellScript:
    """What a script does that is run in /r."""
    return read_script(text, variables, "/r")


def argvs(text: str, **variables: str) -> list[str]:
    """The commands of a script, each as one line of words in brackets where they hold blanks."""
    commands = read(text, **variables).commands
    return [" ".join(f"[{word}]" if " " in word else word for word in one.argv) for one in commands]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cmake -S a \\\n  -B b && ninja -C b || true; make",
         ["cmake -S a -B b", "ninja -C b", "true", "make"]),
        ("run 'a b' \"$X c\" -D'y'=${Y:-1} z\\ w", ["run [a b] [1 c] -Dy=1 [z w]"]),
        ("echo 'a; b && c' | tee log", ["echo [a; b && c]", "tee log"]),
        ("python - <<'PY'\nimport os; os.remove('x')\nPY\nmake", ["python", "make"]),
        ("A=1 B=$X env -u C sudo -E timeout 60 make x", ["make x"]),
        ("# make a\nmake b # make c", ["make b"]),
        ("if [ -n \"$A\" ]; then one; elif two; then three; else four; fi", ["one", "two", "three", "four"]),
        ("case $A in a) one ;; *) two ;; esac", ["one", "two"]),
        ("for i in a b; do run $i; done", ["run $i"]),
        ("for i in $(ls); do run $i; done", ["run $i"]),
        ("f() { run \"$@\" $1; shift; run $1; }\nf a 'b c'", ["run a [b c] a", "run [b c]"]),
        ("f() { f; f; f; f; f; f; f; f; f; }\nf; make", []),
        ("list=(a 'b c')\nlist+=(\"$X\")\nrun \"${list[@]}\"", ["run a [b c] 1"]),
        ("bash -c 'make a && make b'", ["make a", "make b"]),
        ("bash run.sh --enablec all", ["bash run.sh --enablec all"]),
        ("queue --device 1 --run \"cd $X && pytest \\\n  a\"", ["pytest a"]),
        ("run ${{ matrix.x && 'a b' }} $U", ["run [${{ matrix.x && 'a b' }}] $U"]),
        ("run $(date +%s) `id` ${#X}", ["run [$(date +%s)] `id` ${#X}"]),
        ("sha=\"$(git ls-remote $X main)\"\ngit fetch \"$sha\"", ["git fetch [$(git ls-remote 1 main)]"]),
        ("if", []),
        ("", []),
    ],
)  # fmt: skip
def test_a_script_is_cut_into_simple_commands(text: str, expected: list[str]) -> None:
    """Quotes, branches, scripts in arguments; loops are taken once; what is not known stays as written."""
    assert argvs(text, X="1") == expected


def test_variables_of_one_command_are_its_own() -> None:
    """What stands before a command, and what was exported before it."""
    commands = read("export A=1\nB=2 one\ntwo").commands
    expected = [{"A": "1", "B": "2"}, {"A": "1"}]
    assert [one.env for one in commands] == expected


def test_the_working_directory_is_followed() -> None:
    """In a subshell it is changed for that alone."""
    commands = read('one\ncd a/b\ntwo\n(cd ../c; three)\nfour\ncd "$UNKNOWN/x"\nfive').commands
    expected = ["/r", "/r/a/b", "/r/a/c", "/r/a/b", "$UNKNOWN/x"]
    assert [one.cwd for one in commands] == expected


def test_what_may_be_set_or_not_is_not_known() -> None:
    """A variable that only one branch sets stays as it is written behind it."""
    text = 'A=1\nif x; then A=2; fi\nrun "$A"'
    expected = "run $A"
    assert argvs(text)[-1] == expected


def test_variables_for_later_steps_are_told() -> None:
    """Lines that are written to the files that GitHub gives; those of a branch are not certain."""
    text = (
        'echo "A=$X/a" >> "$GITHUB_ENV"\n{ echo "B=b"; echo C=c; } >> $GITHUB_ENV\n'
        'if y; then echo "C=d" >> $GITHUB_ENV; fi\necho "sha=1" >> "$GITHUB_OUTPUT"\necho D=d > other'
    )
    found = read(text, X="/x")
    expected = ({"A": "/x/a", "B": "b"}, {"sha": "1"})
    assert (found.exports, found.outputs) == expected


def test_lines_are_those_of_the_script() -> None:
    """Counted from 0, so that a workflow's file can be named with a line."""
    expected = [0, 3]
    assert [one.line for one in read("one\n\n# note\ntwo \\\n  three").commands] == expected
