"""The example workflows run as GitHub would run them, on machines that are folders."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from tests.conftest import ROOT
from tests.e2e.repositories import git

from tileyard.artifacts.objects import digest_parts
from tileyard.verbs.ci.plan.workflow_expressions import fill

WORKFLOWS = ROOT / "examples" / "workflows"
TOKEN = "of-this-run"
EXPRESSION = re.compile(r"\$\{\{.+?\}\}")
SHELLS = {"": "bash -e {0}", "bash": "bash --noprofile --norc -eo pipefail {0}"}
"""What GitHub makes of a step's shell; others are commands themselves."""


def building_path() -> str:
    """The PATH of a machine that builds, with this tileyard."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def link_packages(folder: Path) -> None:
    """What ``pip install --target`` would bring of tileyard and all that it needs, without extras."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tileyard").symlink_to(ROOT / "src" / "tileyard")
    left, seen = ["tileyard"], set()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        distribution = metadata.distribution(name)
        needed = [Requirement(text) for text in distribution.requires or ()]
        left += [r.name for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
        tops = {file.parts[0] for file in distribution.files or () if ".." not in file.parts}
        for top in tops if name != "tileyard" else ():
            if not (folder / top).is_symlink():
                (folder / top).symlink_to(Path(str(distribution.locate_file(top))))


@dataclass(kw_only=True)
class Hosted:
    """Machines that run the jobs of a workflow. What is uploaded lies in ``artifacts``. Actions are replaced:
    checkouts are copies of the examples, artifacts and caches are folders, and nothing is installed but links
    to the packages that tileyard needs, where they are asked for in a folder.
    """

    folder: Path
    workflow: dict[Any, Any]
    context: dict[str, str]
    event: Mapping[str, str]
    pages: dict[str, str] = field(default_factory=dict)
    _caching: list[Mapping[str, object]] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, folder: Path, event: Mapping[str, str]) -> "Hosted":
        """Machines for an example workflow."""
        text = (WORKFLOWS / name).read_text(encoding="utf-8")
        return cls(folder=folder, workflow=yaml.safe_load(text), context={}, event=event)

    def run(self, job: str, machine: str, path: str, **context: str) -> Path:
        """Run the steps of a job on a machine of its own; its workspace. They all have to succeed."""
        failed = self.try_run(job, machine, path, **context)
        assert not failed, failed
        return self.folder / machine

    def try_run(self, job: str, machine: str, path: str, **context: str) -> str:
        """Run the steps of a job as ``run`` does; what the first one that failed said, empty for none."""
        workspace = self.folder / machine
        workspace.mkdir()
        self.context = {**self.context, **context}
        self.context["github.workspace"] = str(workspace)
        for table in (self.workflow, self.workflow["jobs"][job]):
            env = self._fill(table.get("env", {}))
            self.context |= {f"env.{name}": text for name, text in env.items()}
        output, page = workspace.parent / f"{machine}.output", workspace.parent / f"{machine}.md"
        output.touch()
        environment = {
            **self._fill(self.workflow.get("env", {})),
            **self._fill(self.workflow["jobs"][job].get("env", {})),
            **self.event,
            "PATH": path,
            "HOME": str(self.folder),
            "TMPDIR": str(self._temporary()),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(page),
            "TILEYARD_LOCK_DIR": str(self.folder / "locks"),
            "TILEYARD_HOME": str(workspace / ".tileyard"),
        }
        failed = ""
        for step in self.workflow["jobs"][job]["steps"]:
            if failed and step.get("if") != "always()":
                continue
            self._caching += [step["with"]] if step.get("uses") == "actions/cache@v4" else []
            said = self._do(step, workspace, environment)
            failed = failed or ("" if step.get("continue-on-error") else said)
            for line in output.read_text(encoding="utf-8").splitlines():
                key, _, value = line.partition("=")
                self.context[f"steps.{step.get('id')}.outputs.{key}"] = value
            output.write_text("", encoding="utf-8")
        while self._caching and not failed:
            self._save(self._fill(self._caching.pop()), workspace)
        for key, value in self._fill(self.workflow["jobs"][job].get("outputs", {})).items():
            self.context[f"needs.{job}.outputs.{key}"] = value
        if page.exists():
            self.pages[machine] = page.read_text(encoding="utf-8")
        self.context[f"needs.{job}.result"] = "failure" if failed else "success"
        return failed

    def rows(self, job: str) -> Iterator[dict[str, str]]:
        """The context of each job of a matrix."""
        text = self.workflow["jobs"][job]["strategy"]["matrix"]
        (place,) = re.findall(r"\$\{\{ fromJSON\((.+)\) \}\}", text)
        for number, row in enumerate(json.loads(self.context[place])["include"]):
            yield {
                **{f"matrix.{name}": str(value) for name, value in row.items()},
                "strategy.job-index": str(number),
            }

    def _temporary(self) -> Path:
        folder = self.folder / "tmp"
        folder.mkdir(exist_ok=True)
        return folder

    def _act(self, action: str, options: Mapping[str, str], workspace: Path) -> None:
        artifacts = self.folder / "artifacts"
        match action.partition("@")[0]:
            case "actions/checkout":
                shutil.copytree(
                    self.folder / "origin", workspace, dirs_exist_ok=True, symlinks=True
                )
                if "ref" in options:
                    git(workspace, "checkout", "-q", "--detach", options["ref"])
            case "actions/upload-artifact":
                shutil.copytree(workspace / options["path"], artifacts / options["name"])
            case "actions/download-artifact" if not options.get("run-id", "1"):
                raise FileNotFoundError("this run has uploaded nothing yet")
            case "actions/download-artifact" if "name" in options:
                found = artifacts / options["name"]
                shutil.copytree(found, workspace / options["path"], symlinks=True)
            case "actions/download-artifact":
                for found in artifacts.glob(options["pattern"]):
                    shutil.copytree(found, workspace / options["path"] / found.name)
            case "actions/cache" | "actions/cache/restore":
                kept = sorted(
                    (self.folder / "caches").glob("*"), key=lambda one: one.stat().st_mtime_ns
                )
                wanted = (options["key"], *options.get("restore-keys", "").split())
                fits = [
                    one for text in wanted for one in reversed(kept) if one.name.startswith(text)
                ]
                for one in fits[:1]:
                    self._copy(one, workspace / options["path"])
            case "actions/cache/save":
                self._save(options, workspace)
            case "actions/setup-python":
                pass
            case other:
                raise AssertionError(f"{other} is not known here")

    def _save(self, options: Mapping[str, str], workspace: Path) -> None:
        kept = self.folder / "caches" / options["key"]
        if not kept.exists() and (workspace / options["path"]).exists():
            self._copy(workspace / options["path"], kept)
            os.utime(kept)

    @staticmethod
    def _copy(path: Path, place: Path) -> None:
        """A folder or a file as it is."""
        place.parent.mkdir(exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, place, symlinks=True)
        else:
            shutil.copy2(path, place)

    def _do(self, step: Mapping[str, Any], workspace: Path, outer: Mapping[str, str]) -> str:
        """Do one step; what it said if it failed."""
        if "uses" in step:
            try:
                self._act(step["uses"], self._fill(step.get("with", {})), workspace)
            except FileNotFoundError as error:
                return str(error)
            return ""
        if step["run"].startswith("pip install"):
            if "--target" in step["run"]:
                link_packages(Path(outer["TILEYARD_HOME"]) / "site")
            return ""
        script = self._temporary() / "script"
        script.write_text(self._fill_in(step["run"]), encoding="utf-8")
        shell = step.get("shell", "")
        done = subprocess.run(
            SHELLS.get(shell, shell).replace("{0}", str(script)).split(),
            cwd=workspace,
            env={**outer, **self._fill(step.get("env", {}))},
            capture_output=True,
            text=True,
            check=False,
        )
        return f"{script}\n{done.stdout}\n{done.stderr}" if done.returncode else ""

    def _fill(self, table: Mapping[str, object]) -> dict[str, str]:
        return {name: self._fill_in(str(text)) for name, text in table.items()}

    def _fill_in(self, text: str) -> str:
        """A text as GitHub fills it in: what it does not know is empty."""
        known = {
            "vars.DEVICES": "--slots 2",
            "github.run_id": "1",
            "github.token": TOKEN,
            "runner.temp": str(self._temporary()),
            "runner.os": "Linux",
            "runner.arch": "X64",
            **self.context,
        }
        text = re.sub(r"hashFiles\('(.+?)'\)", lambda found: f"'{self._hash(found[1])}'", text)
        for name in re.findall(r"[a-z]+(?:\.[\w-]+)+", " ".join(EXPRESSION.findall(text))):
            known.setdefault(name, "")
        return EXPRESSION.sub("", fill(text, known))

    def _hash(self, pattern: str) -> str:
        files = sorted(Path(self.context["github.workspace"]).glob(pattern))
        return digest_parts("files", *(one.read_text() for one in files if one.is_file()))
