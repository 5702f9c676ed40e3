"""The examples are what the pages show, are understood by migverify, and hold no secret.

`make test-examples` asks the tools of each platform too; they are not needed here.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from migverify.cli.main import run
from migverify.config import load_config
from tests.pages import declared_commands

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
MANIFESTS = sorted((EXAMPLES / "kubernetes").glob("*.yaml"))
WORKFLOWS = sorted([*(ROOT / ".github" / "workflows").glob("*.yml"), *(EXAMPLES / "github").glob("*.yml")])
PASSWORDS = {"SOURCE_PASSWORD": "a", "TARGET_PASSWORD": "b", "STORE_PASSWORD": "c"}
SERVERS = {"SOURCE_HOST": "source", "SOURCE_PORT": "3306", "TARGET_HOST": "target", "TARGET_PORT": "4000"}
OPTIONS = {
    line: {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    for line, command in declared_commands()
}


def test_blocks_of_a_page_with_a_file_name_are_that_file() -> None:
    shown = set()
    for page in (ROOT / "docs").glob("*.md"):
        text = page.read_text()

        def block(found: re.Match[str]) -> str:
            shown.add(found[1])
            return f"<!-- file: {found[1]} -->\n```{found[2]}\n{(ROOT / found[1]).read_text()}```\n"

        fresh = re.sub(r"<!-- file: (\S+) -->\n```(\w+)\n(?:.*?\n)??```\n", block, text, flags=re.DOTALL)
        if os.environ.get("REGEN") == "1":
            page.write_text(fresh)
            text = fresh
        assert text == fresh, "run the tests once with REGEN=1 and look at the change"
    of_pipelines = [*EXAMPLES.glob("github/*"), *EXAMPLES.glob("gitlab/*"), *EXAMPLES.glob("ci/*.*")]
    assert {str(path.relative_to(ROOT)) for path in of_pipelines} <= shown


def commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each migverify command in a script or manifest."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("#"):
            continue
        for found in re.finditer(r"(?:^|[\s;&|])migverify (?!@)([a-z][^#;&|>]*)", line):
            yield shlex.split(found[1].strip(" `\"'"))


def refused(words: list[str]) -> str:
    """Return what migverify does not know of a command line; empty when it knows it."""
    known = [line for line in OPTIONS if words[: len(line.split())] == line.split()]
    if not known:
        return f"no command is called {' '.join(words)}"
    line = max(known, key=len)
    unknown = {word.partition("=")[0] for word in words if word.startswith("-")} - OPTIONS[line] - {*line.split()}
    return f"{line} has no {sorted(unknown)}" if unknown else ""


def containers() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for path in MANIFESTS:
        for document in yaml.safe_load_all(path.read_text()):
            spec = document.get("spec", {})
            template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
            if template is not None:
                (container,) = template["spec"]["containers"]
                yield f"{path.name} {document['kind']}", template["spec"], container


def test_commands_of_the_examples_are_commands() -> None:
    texts = [path.read_text() for path in [*WORKFLOWS, *(EXAMPLES / "gitlab").glob("*.yml"), *MANIFESTS]]
    found = [words for text in texts for words in commands(text)]
    found += [container["args"] for _, _, container in containers() if "command" not in container]
    for step in json.loads((EXAMPLES / "emr" / "steps.json").read_text()):
        (script,) = [number for number, word in enumerate(step["Args"]) if word.endswith("/verify_tables.py")]
        found.append(["tables", "verify", *step["Args"][script + 1 :]])
    bundle = yaml.safe_load((EXAMPLES / "databricks" / "databricks.yml").read_text())
    (task,) = bundle["resources"]["jobs"]["verify_tables"]["tasks"]
    found.append(["tables", "verify", *task["spark_python_task"]["parameters"]])
    assert len(found) >= 9
    assert [wrong for words in found if (wrong := refused(words))] == []
    assert refused(["tables", "verify", "--sinc", "last"]) == "tables verify has no ['--sinc']"
    assert refused(["tables", "prove"]) == "no command is called tables prove"


def test_configurations_of_the_examples_are_read(tmp_path: Path) -> None:
    (config,) = [
        document["data"]["migverify.yaml"]
        for document in yaml.safe_load_all((EXAMPLES / "kubernetes" / "config.yaml").read_text())
    ]
    (tmp_path / "migverify.yaml").write_text(config.replace("/tls/", str(tmp_path) + "/"))
    for name in ("source-ca.pem", "target-ca.pem", "store-ca.pem"):
        (tmp_path / name).write_text("")
    for path in (
        tmp_path / "migverify.yaml",
        EXAMPLES / "ci" / "migverify.ci.yaml",
        EXAMPLES / "emr" / "migverify.yaml",
    ):
        assert load_config(path, environment={**PASSWORDS, **SERVERS}).tables.include


def test_containers_run_without_rights_and_get_secrets_by_reference() -> None:
    seen = list(containers())
    assert {name for name, _, _ in seen} == {
        "job.yaml Job", "cronjob.yaml CronJob", "watch.yaml Deployment", "fleet.yaml Deployment", "fleet.yaml CronJob",
        "readiness.yaml Deployment",
    }  # fmt: skip
    for name, pod, container in seen:
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["runAsUser"] > 10000, name
        assert pod["automountServiceAccountToken"] is False, name
        context = container["securityContext"]
        assert context == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}
        }, name  # fmt: skip
        assert container["resources"]["requests"], name
        assert container["resources"]["limits"]["memory"], name
        secrets = {entry["name"]: entry for entry in container["env"] if "PASSWORD" in entry["name"]}
        assert secrets.keys() - {"MIGVERIFY_RUNS_PASSWORD"} == PASSWORDS.keys(), name
        assert all("value" not in entry and entry["valueFrom"]["secretKeyRef"] for entry in secrets.values()), name
    assert "kind: Secret" not in "".join(path.read_text() for path in MANIFESTS)


def test_the_fleet_of_the_cluster_finds_its_services_where_they_are_mounted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = list(yaml.safe_load_all((EXAMPLES / "kubernetes" / "fleet.yaml").read_text()))
    (tmp_path / "fleet.yaml").write_text(documents[0]["data"]["fleet.yaml"])
    config = yaml.safe_load((EXAMPLES / "kubernetes" / "config.yaml").read_text())["data"]["migverify.yaml"]
    # The store of the example is a server; without one the plan is made of what a new store has.
    own = "\n".join(line for line in config.splitlines() if not line.startswith("store")).replace(
        "/tls/", f"{tmp_path}/"
    )
    for name in ("source-ca.pem", "target-ca.pem"):
        (tmp_path / name).write_text("")
    for name, value in PASSWORDS.items():
        monkeypatch.setenv(name, value)
    for document in documents:
        spec = document.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template is None:
            continue
        (container,) = template["spec"]["containers"]
        (mounted,) = [one for one in container["volumeMounts"] if one["name"] == "config"]
        (tmp_path / Path(mounted["mountPath"]).relative_to("/data")).write_text(own)
        assert {"name": "MIGVERIFY_FLEET", "value": "/data/fleet.yaml"} in container["env"]
    assert run(["fleet", "verify", "--plan", "--now", "--fleet", str(tmp_path / "fleet.yaml")]) == 0
    planned = capsys.readouterr().out
    assert "10 to mysql.payments.svc:3306, 10 to tidb.payments.svc:4000" in planned


def test_a_mismatch_ends_a_job_and_what_was_not_read_is_tried_again() -> None:
    for path in ("job.yaml", "cronjob.yaml", "fleet.yaml"):
        documents = yaml.safe_load_all((EXAMPLES / "kubernetes" / path).read_text())
        (document,) = [one for one in documents if one["kind"] in ("Job", "CronJob")]
        spec = document["spec"].get("jobTemplate", document)["spec"]
        rule = spec["podFailurePolicy"]["rules"][0]
        assert (rule["action"], rule["onExitCodes"]["values"]) == ("FailJob", [1, 2])
        assert spec["backoffLimit"] > 0
        assert spec["template"]["spec"]["restartPolicy"] == "Never"


def test_actions_are_pinned_and_only_the_jobs_that_need_it_may_write() -> None:
    for path in WORKFLOWS:
        for used in re.findall(r"uses: (.+)$", path.read_text(), flags=re.MULTILINE):
            assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used), f"{path.name}: {used}"
        assert yaml.safe_load(path.read_text())["permissions"] == {"contents": "read"}, path.name
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"]["name"] == "pypi"
    assert {name for name, job in jobs.items() if "contents" in job["permissions"]} == {"build", "github"}


@pytest.mark.parametrize("path", sorted((ROOT / "docker").glob("*.Dockerfile")), ids=lambda path: path.name)
def test_images_are_built_of_hashed_wheels_and_run_as_nobody(path: Path) -> None:
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    stages = [rest for word, rest in lines if word == "FROM"]
    assert len(stages) >= 2
    assert [rest for word, rest in lines if word == "USER"] == ["10001:10001"]
    assert not {"ADD", "HEALTHCHECK", "SHELL"} & {word for word, _ in lines}
    installs = re.findall(r"pip install [^&]+", text)
    assert len(installs) >= 2
    assert all("--require-hashes" in one or "--no-index --no-deps" in one for one in installs)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    for rest in (rest for word, rest in lines if word == "COPY" and not rest.startswith("--from")):
        assert {f"!{name}" for name in rest.split()[:-1]} <= set(ignored)
