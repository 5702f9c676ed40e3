"""What the tools of each platform say of the examples: schemas of workflows and manifests, linters of images."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
WORKFLOWS = [
    *sorted((ROOT / ".github" / "workflows").glob("*.yml")),
    *sorted((ROOT / "examples" / "github").glob("*.yml")),
]


def passes(*command: str | Path) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def refuses(*command: str | Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode != 0, "the tool finds nothing in a broken file"
    return done.stdout + done.stderr


def test_workflows_are_what_github_runs() -> None:
    assert len(WORKFLOWS) >= 3
    passes(BIN / "actionlint", "-no-color", "-shellcheck=", "-pyflakes=", *WORKFLOWS)
    passes(BIN / "check-jsonschema", "--builtin-schema", "vendor.github-workflows", *WORKFLOWS)
    passes(BIN / "check-jsonschema", "--builtin-schema", "vendor.dependabot", ROOT / ".github" / "dependabot.yml")


def test_pipelines_are_what_gitlab_runs() -> None:
    files = sorted((ROOT / "examples" / "gitlab").glob("*.yml"))
    assert len(files) >= 2
    passes(BIN / "check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", *files)


def test_manifests_are_what_kubernetes_accepts() -> None:
    files = sorted((ROOT / "examples" / "kubernetes").glob("*.yaml"))
    assert len(files) >= 4
    for version in ("1.31", "1.34", "1.37"):
        passes(BIN / "kubernetes-validate", "--strict", "--kubernetes-version", version, *files)


def test_dockerfiles_have_no_finding() -> None:
    files = sorted((ROOT / "docker").glob("*.Dockerfile"))
    assert len(files) == 2
    passes(BIN / "hadolint", "--failure-threshold", "style", *files)


@pytest.mark.parametrize(
    ("file", "old", "new", "tool", "says"),
    [
        (".github/workflows/release.yml", "needs: build", "needs: bild", ["actionlint", "-no-color"], "bild"),
        ("examples/github/verify.yml", "runs-on:", "run-on:",
         ["check-jsonschema", "--builtin-schema", "vendor.github-workflows"], "run-on"),
        ("examples/gitlab/verify.yml", "  script:", "  scripts:",
         ["check-jsonschema", "--builtin-schema", "vendor.gitlab-ci"], "scripts"),
        ("examples/kubernetes/job.yaml", "readOnlyRootFilesystem", "readOnlyRoot",
         ["kubernetes-validate", "--strict"], "readOnlyRoot"),
        ("docker/cli.Dockerfile", "WORKDIR /data", "WORKDIR data", ["hadolint"], "DL3000"),
    ],
)  # fmt: skip
def test_the_tools_see_a_broken_file(tmp_path: Path, file: str, old: str, new: str, tool: list[str], says: str) -> None:
    text = (ROOT / file).read_text()
    assert old in text
    broken = tmp_path / Path(file).name
    broken.write_text(text.replace(old, new, 1))
    assert says in refuses(BIN / tool[0], *tool[1:], broken)
