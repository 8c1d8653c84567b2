"""The example workflow that times a pull request, run as GitHub would, against a server like GitHub's."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import ROOT
from tests.e2e.hosted import TOKEN, WORKFLOWS, Hosted, building_path
from tests.e2e.repositories import COPY, git

pytestmark = pytest.mark.slow

BOT = "github-actions[bot]"
OURS = "lab/kernels"
KERNEL = "import tilelang.language as T\nimport tileyard\n" + COPY.replace("{name}", "copy")


@dataclass
class GitHub:
    """What a repository on GitHub has, as far as the workflow asks for it or changes it."""

    address: str = ""
    pull: dict[str, Any] = field(default_factory=dict)
    permissions: dict[str, str] = field(default_factory=dict)
    comments: list[dict[str, Any]] = field(default_factory=list)
    statuses: list[tuple[str, str]] = field(default_factory=list)
    posted: int = 0

    def answer(self, method: str, path: str, content: Mapping[str, str]) -> object:
        """Do what a request asks for; None where there is no such address."""
        match method, path.removeprefix(f"/repos/{OURS}/").split("/"):
            case "GET", ["collaborators", name, "permission"]:
                return {"permission": self.permissions.get(name, "read")}
            case "GET", ["pulls", "7"]:
                return self.pull
            case "POST", ["statuses", commit]:
                self.statuses.append((commit, content["state"]))
                return {}
            case "GET", ["issues", "7", asked]:
                page = int(asked.removeprefix("comments?per_page=100&page="))
                return self.comments[100 * (page - 1) : 100 * page]
            case "POST", ["issues", "7", "comments"]:
                self.posted += 1
                self.add(BOT, content["body"])
                return {}
            case "PATCH", ["issues", "comments", number]:
                self.comments[int(number)]["body"] = content["body"]
                return {}
        return None

    def add(self, who: str, body: str) -> None:
        """A comment on the pull request."""
        self.comments.append({"id": len(self.comments), "user": {"login": who}, "body": body})


@pytest.fixture
def github() -> Iterator[GitHub]:
    """A server that answers those who have the token, and no others."""
    state = GitHub()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            known = self.headers["Authorization"] == f"Bearer {TOKEN}"
            found = state.answer(self.command, self.path, json.loads(raw or "null"))
            self.send_response(200 if known and found is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        do_GET = do_POST = do_PATCH = _answer  # noqa: N815 - the base class's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as above
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        state.address = f"http://127.0.0.1:{server.server_port}"
        yield state
        server.shutdown()
        thread.join()


@pytest.fixture
def origin(tmp_path: Path, github: GitHub) -> Path:
    """A repository whose pull request 7 changes a comment; the base has moved on since."""
    folder = tmp_path / "origin"
    (folder / "bench").mkdir(parents=True)
    file = folder / "bench" / "kernels.py"
    file.write_text(KERNEL)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    git(folder, "checkout", "-q", "-b", "change")
    file.write_text(f"{KERNEL}\n# faster\n")
    git(folder, "commit", "-q", "-a", "-m", "change")
    git(folder, "checkout", "-q", "main")
    file.write_text("raise SystemExit('not what the change is compared with')\n")
    git(folder, "commit", "-q", "-a", "-m", "moved on")
    github.pull = {
        "number": 7,
        "base": {"sha": git(folder, "rev-parse", "main")},
        "head": {"sha": git(folder, "rev-parse", "change"), "repo": {"full_name": OURS}},
    }
    github.permissions = {"ann": "write"}
    return folder


class Runs:
    """Runs of the workflow, each on machines of its own."""

    def __init__(self, folder: Path, github: GitHub) -> None:
        self._folder, self._github, self._count = folder, github, 0

    def begin(self, event: dict[str, Any]) -> Hosted:
        """The next run, for this event."""
        self._count += 1
        folder = self._folder / f"run{self._count}"
        folder.mkdir()
        (folder / "origin").symlink_to(self._folder / "origin")
        (folder / "event.json").write_text(json.dumps(event))
        known = {
            "GITHUB_API_URL": self._github.address,
            "GITHUB_REPOSITORY": OURS,
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_RUN_ID": str(self._count),
            "GITHUB_EVENT_PATH": str(folder / "event.json"),
        }
        return Hosted.of("regress.yml", folder, known)

    def comment(self, words: str, who: str = "ann") -> Hosted:
        """The next run, for a comment."""
        user = {"sender": {"login": who}, "comment": {"body": words}}
        return self.begin({**user, "issue": {"number": 7, "pull_request": {}}})


@pytest.fixture
def runs(tmp_path: Path, origin: Path, github: GitHub) -> Runs:
    """Runs for the pull request."""
    return Runs(tmp_path, github)


def test_a_pull_request_has_one_comment_that_says_how_the_last_run_ended(
    runs: Runs, github: GitHub
) -> None:
    """The first run posts it, a later one updates it; a missing device, or runner, is in it, and red."""
    head, path = github.pull["head"]["sha"], building_path()
    github.add("eve", "<!-- tileyard regress --> mine")
    for _ in range(100):
        github.add("ann", "hm")
    first = runs.comment("/regress")
    for job in ("asked", "measured", "told"):
        first.run(job, job, path)
    assert github.statuses == [(head, "pending"), (head, "success")]
    assert f"regress` of {head}: passed**" in github.comments[101]["body"]
    assert "1 kernel: 1 unchanged" in github.comments[101]["body"]

    second = runs.begin(
        {"sender": {"login": "ann"}, "label": {"name": "regress"}, "pull_request": github.pull}
    )
    second.run("asked", "asked", path)
    assert second.try_run(
        "measured", "measured", path, **{"vars.REGRESS_OPTIONS": "--devices cuda:9"}
    )
    assert second.try_run("told", "told", path)
    body = github.comments[101]["body"]
    assert "failed: it ended without a result" in body
    assert "cuda:9" in body

    third = runs.comment("/regress")
    third.run("asked", "asked", path)
    assert third.try_run("told", "told", path, **{"needs.measured.result": "cancelled"})
    assert "failed: the job was cancelled" in github.comments[101]["body"]
    assert [state for _, state in github.statuses[2:]] == ["pending", "failure"] * 2
    assert (github.posted, github.comments[0]["body"]) == (1, "<!-- tileyard regress --> mine")


def test_what_the_measuring_job_hands_over_is_text_of_others(
    runs: Runs, github: GitHub, tmp_path: Path
) -> None:
    """Links are not followed, long text is cut, nobody is called, and a job that failed stays red."""
    (tmp_path / "secret").write_text("of the runner")
    path, hosted = building_path(), runs.comment("/regress")
    hosted.run("asked", "asked", path)
    artifact = hosted.folder / "artifacts" / "regress"
    artifact.mkdir(parents=True)
    (artifact / "regress.md").symlink_to(tmp_path / "secret")
    (artifact / "log.txt").write_text("```\n@ann ${{ x }} $(touch owned)\n")
    assert hosted.try_run("told", "told", path, **{"needs.measured.result": "success"})
    body = github.comments[0]["body"]
    assert "left no result" in body
    assert "secret" not in body
    assert "of the runner" not in body
    assert "    ```\n    @?ann ${{ x }} $(touch owned)\n" in body
    (artifact / "regress.md").unlink()
    (artifact / "regress.md").write_text("@all passed <!-- " + "x" * 1_000_000)
    assert hosted.try_run("told", "again", path, **{"needs.measured.result": "failure"})
    body = github.comments[0]["body"]
    assert ": failed** " in body
    assert len(body) < 65_536
    assert "@all" not in body
    assert body.count("<!--") == 1
    assert [state for _, state in github.statuses] == ["pending", "failure", "failure"]


def test_only_who_may_write_starts_one_and_of_a_fork_only_what_was_read(
    runs: Runs, github: GitHub
) -> None:
    """Nobody else leaves a trace; the code of a fork runs at the commit that is named."""
    path, head = building_path(), github.pull["head"]["sha"]
    assert "eve may not write here" in runs.comment("/regress", "eve").try_run("asked", "a", path)
    assert runs.comment("/regression is bad").try_run("asked", "a", path)
    assert github.statuses == []
    github.pull["head"]["repo"] = {"full_name": "eve/kernels"}
    assert "a fork" in runs.comment("/regress").try_run("asked", "a", path)
    assert "another commit" in runs.comment("/regress 1234567").try_run("asked", "a", path)
    named = runs.comment(f"/regress {head[:8]}")
    named.run("asked", "a", path)
    assert named.context["needs.asked.outputs.head"] == head
    assert [state for _, state in github.statuses] == ["error", "error", "pending"]


def test_the_job_that_runs_foreign_code_may_only_read() -> None:
    """No secret, token or right to write where the pull request's code runs; no script is made of text."""
    text = (WORKFLOWS / "regress.yml").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {}
    assert {name: job["permissions"] for name, job in workflow["jobs"].items()} == {
        "asked": {"pull-requests": "read", "statuses": "write"},
        "measured": {"contents": "read"},
        "told": {"pull-requests": "write", "statuses": "write"},
    }
    assert "secrets." not in text
    assert "github.token" not in json.dumps(workflow["jobs"]["measured"])
    steps = {name: job["steps"] for name, job in workflow["jobs"].items()}
    assert not any("${{" in step.get("run", "") for own in steps.values() for step in own)
    writers = [step["uses"] for name in ("asked", "told") for step in steps[name] if "uses" in step]
    assert writers == ["actions/download-artifact@v4"]
    page = (ROOT / "docs" / "how-to" / "compare-versions.md").read_text(encoding="utf-8")
    assert re.search(r"\]\(\.\./\.\./examples/workflows/regress\.yml\)", page)
