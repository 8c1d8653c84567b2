"""Workflows as they are written: what is read of them, and the messages for bad ones."""

import re
from pathlib import Path

import pytest

from tileyard.base.errors import UsageError
from tileyard.verbs.ci.plan.workflow_duplicates import list_workflows
from tileyard.verbs.ci.plan.workflows import WorkflowJob, read_workflow

CI = ".github/workflows/ci.yml"


def write(root: Path, text: str, file: str = CI) -> Path:
    """A file of a checkout."""
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def read(root: Path, text: str) -> list[WorkflowJob]:
    """The jobs of a workflow of this text."""
    return read_workflow(write(root, text), root)


def test_steps_have_their_lines_and_their_variables(tmp_path: Path) -> None:
    """Workflow, job and step say variables; conditions and folders come from the job, too."""
    text = """on: [push, pull_request]
env: {A: 1, B: w}
defaults:
  run:
    working-directory: src
jobs:
  one:
    name: First
    if: github.ref == 'x'
    runs-on: [self-hosted, Linux]
    env:
      B: ${{ github.workspace }}/b
    steps:
    - uses: actions/checkout@v4
      with:
        path: a
    - name: Build
      if: always()
      env: {C: c}
      run: |
        make
"""
    (job,) = read(tmp_path, text)
    expected = ("ci/one", "First", ("push", "pull_request"), "self-hosted, Linux")
    assert (job.name, job.title, job.events, job.runs_on) == expected
    assert job.env == {"A": "1", "B": f"{tmp_path}/b"}
    checkout, build = job.steps
    assert (checkout.name, build.name) == ("Run actions/checkout@v4", "Build")
    assert (checkout.where, checkout.options) == (f"{tmp_path / CI}:14", {"path": "a"})
    assert (build.where, build.run_line, build.run) == (f"{tmp_path / CI}:17", 21, "make\n")
    assert (build.cwd, build.env, build.conditions) == (
        "src",
        {"C": "c"},
        ("github.ref == 'x'", "always()"),
    )


def test_scripts_of_other_languages_hold_no_commands(tmp_path: Path) -> None:
    """A shell is one by its name; other programs read what is not a script of a shell."""
    shells = ("bash", "sh", "bash -e {0}", "python", "python3 {0}", "pwsh")
    rows = "".join(f"    - {{run: make, shell: '{shell}'}}\n" for shell in shells)
    (job,) = read(tmp_path, f"on: push\njobs:\n  a:\n    steps:\n{rows}")
    expected = ["make", "make", "make", "", "", ""]
    assert [step.run for step in job.steps] == expected
    (job,) = read(
        tmp_path,
        "on: push\njobs:\n  a:\n    steps:\n    - run: ''\n    - run: |\n\n        a\n        b\n",
    )
    assert [step.name for step in job.steps] == ["Run ", "Run a"]


def test_a_matrix_is_expanded(tmp_path: Path) -> None:
    """With what is added and left out; one that only a run knows stays one job."""
    text = """on: push
jobs:
  a:
    runs-on: ${{ matrix.os }}
    strategy:
      matrix:
        os: [x, y]
        python: [3.10, "3.11"]
        exclude: [{os: y, python: 3.10}]
        include: [{os: x, extra: e}, {os: z}]
    steps: [{run: "echo ${{ matrix.python }}${{ matrix.extra }}"}]
  b:
    strategy: {matrix: "${{ fromJSON(needs.a.outputs.m) }}"}
    steps: [{run: "echo ${{ matrix.x }}"}]
"""
    jobs = read(tmp_path, text)
    expected = [
        ("ci/a (x, 3.10, e)", "x", "echo 3.10e"),
        ("ci/a (x, 3.11, e)", "x", "echo 3.11e"),
        ("ci/a (y, 3.11)", "y", "echo 3.11${{ matrix.extra }}"),
        ("ci/a (z)", "z", "echo ${{ matrix.python }}${{ matrix.extra }}"),
        ("ci/b", "", "echo ${{ matrix.x }}"),
    ]
    assert [(job.name, job.runs_on, job.steps[0].run) for job in jobs] == expected
    assert [job.leg_of for job in jobs] == ["ci/a"] * 4 + [""]


def test_workflows_and_actions_are_entered_with_their_inputs(tmp_path: Path) -> None:
    """Places are those of the called file; a workflow that is only called is not a workflow of its own."""
    called = """on:
  workflow_call:
    inputs:
      folder: {default: d}
      mode: {default: m}
jobs:
  inner:
    steps:
    - uses: ./act
      with: {word: "${{ inputs.folder }}"}
"""
    action = """name: act
inputs:
  word: {default: w}
  more: {default: o}
runs:
  using: composite
  steps:
  - run: run ${{ inputs.word }} ${{ inputs.more }}
    shell: bash
"""
    write(tmp_path, called, ".github/workflows/called.yml")
    write(tmp_path, action, "act/action.yml")
    text = "on: push\njobs:\n  outer:\n    uses: ./.github/workflows/called.yml\n    with: {folder: f}\n"
    (job,) = read(tmp_path, text)
    expected = ("ci/outer/inner", "outer / inner", ("push",), "run f o")
    assert (job.name, job.title, job.events, job.steps[0].run) == expected
    assert job.steps[0].where == f"{tmp_path}/act/action.yml:8"
    assert read_workflow(tmp_path / ".github/workflows/called.yml", tmp_path) == []


def test_labels_stand_at_their_steps(tmp_path: Path) -> None:
    """Above a step, beside it, or in its script; not those of its neighbours."""
    text = """on: push
jobs:
  a:
    steps:
    # tileyard: does=one minutes=2.5
    - run: a
    - run: | # tileyard: does=two
        b
    - run: |
        c
        # tileyard: does=three
    # tileyard: does=four
    - run: d

    - run: e
"""
    (job,) = read(tmp_path, text)
    expected = [("one", 150.0), ("two", 0.0), ("three", 0.0), ("four", 0.0), ("", 0.0)]
    assert [(step.does, step.seconds) for step in job.steps] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jobs: [", ":1: is not valid YAML"),
        ("on: push\njobs:\n  a: {b: 1\n", r":4: is not valid YAML"),
        ("", ":1: is not a workflow"),
        ("on: push\n", ":1: has no job"),
        ("jobs: {a: {steps: [{run: x}]}}\n", ":1: says no event under `on`"),
        ("on: push\njbos: 1\n", r":2: jbos: unknown key .did you mean 'jobs'"),
        ("on: push\non: pull\n", ":2: on: is on line 1 already"),
        ("on: push\njobs:\n  a:\n    step: []\n", r":4: jobs.a.step: unknown key .did you mean 'steps'"),
        ("on: push\njobs:\n  a:\n    runs-on: x\n", ":3: jobs.a: needs either `steps` or `uses`"),
        ("on: push\njobs:\n  a: b\n", ":3: jobs.a: is not a table but 'b'"),
        ("on: push\njobs:\n  a:\n    steps:\n    - name: x\n", r":5: jobs.a.steps\[0\]: needs either"),
        ("on: push\njobs:\n  a:\n    steps:\n    - rum: x\n",
         r":5: jobs.a.steps\[0\].rum: unknown key .did you mean 'run'"),
        ("on: push\njobs:\n  a:\n    uses: ./b.yml\n", ":4: jobs.a.uses: there is no workflow"),
        ("on: push\njobs:\n  a:\n    uses: ./.github/workflows/ci.yml\n", "calls itself"),
        ("on: push\njobs:\n  a:\n    steps:\n    - run: x # tileyard: dose=y\n",
         ":5: cannot read the label 'dose=y'"),
        ("on: push\njobs:\n  a:\n    steps:\n    - run: x\n      env: [A]\n",
         r":6: jobs.a.steps\[0\].env: is not a table"),
    ],
)  # fmt: skip
def test_a_bad_workflow_is_refused_by_line_and_key(
    tmp_path: Path, text: str, expected: str
) -> None:
    """One line that says where it stands."""
    path = write(tmp_path, text)
    with pytest.raises(UsageError, match=expected) as caught:
        read_workflow(path, tmp_path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_chain_of_workflows_has_an_end(tmp_path: Path) -> None:
    """As GitHub has it; one that only is too long is not said to call itself."""
    for number in range(12):
        uses = f"./.github/workflows/w{number + 1}.yml"
        text = f"on: [push, workflow_call]\njobs: {{a: {{uses: {uses}}}}}\n"
        write(tmp_path, text, f".github/workflows/w{number}.yml")
    path = write(tmp_path, "on: workflow_call\n", ".github/workflows/w12.yml")
    with pytest.raises(UsageError, match=r"w10.yml: calls go deeper than 10") as caught:
        read_workflow(path.with_name("w0.yml"), tmp_path)
    assert re.search(r"w11\.yml; use that from a file nearer to .*w0\.yml", caught.value.hint)


def test_aliases_have_an_end(tmp_path: Path) -> None:
    """A few lines that stand for a billion are refused before they are."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    path = write(tmp_path, "\n".join(lines))
    with pytest.raises(UsageError, match="its aliases make it too large"):
        read_workflow(path, tmp_path)


def test_workflows_are_found_in_a_checkout(tmp_path: Path) -> None:
    """By its top, by their folder, and by their files."""
    path = write(tmp_path, "on: push\n")
    expected = [path]
    assert list_workflows(tmp_path) == expected
    assert list_workflows(path.parent) == expected
    assert list_workflows(path) == expected
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no workflow"):
        list_workflows(tmp_path / "empty")
