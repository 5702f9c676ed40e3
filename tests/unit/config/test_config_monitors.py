"""``monitors:`` in the configuration: what reaches the guard, and what is refused without showing a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from migverify.cli.monitors import make_guard
from migverify.config import Config, ExpectedJob, ExpectedSeries, load_config
from migverify.config.digest import comparison_digest, describe
from migverify.errors import ConfigError

BOTH = "source: {url: mysql://u@h}\ntarget: {url: tidb://u@h}\n"


def load(folder: Path, text: str) -> Config:
    path = folder / "migverify.yaml"
    path.write_text(BOTH + text)
    return load_config(path, environment={})


def test_all_of_it_arrives(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        """\
monitors:
  prometheus: https://prom:9090/path/
  user: me
  password_env: PROM
  ca: ca.pem
  max_age_seconds: 30
  retention_hours: 2
  watchdog: Watchdog
  jobs: {mysql: 2, tidb: [a:1, b:1], kafka: {instances: 1, max_age_seconds: 5}}
  series: {lag: {query: lag, job: mysql, max: 5, age_of: [lag]}}
  sql: {max_lock_waits: 3}
""",
    ).monitors
    assert found.prometheus == "https://prom:9090/path"
    assert found.jobs == {
        "mysql": ExpectedJob(instances=2), "tidb": ExpectedJob(instances=("a:1", "b:1")),
        "kafka": ExpectedJob(instances=1, max_age_seconds=5.0),
    }  # fmt: skip
    assert [(job.count, job.labels, found.max_age_of(job)) for job in found.jobs.values()] == [
        (2, (), 30.0), (2, ("a:1", "b:1"), 30.0), (1, (), 5.0),
    ]  # fmt: skip
    assert found.series == {"lag": ExpectedSeries(query="lag", job="mysql", max=5.0, age_of=("lag",))}
    assert found.max_age_of(found.series["lag"]) == 30.0
    assert (found.retention_hours * 3600, found.sql.max_lock_waits, found.password_env) == (7200.0, 3, "PROM")


@pytest.mark.parametrize(
    "text",
    [
        "{prometheus: 'http://me:hunter2@prom:9090'}", "{prometheus: 'http://prom:9090/?token=hunter2'}",
        "{prometheus: 'prom:9090'}", "{prometheus: 'ftp://prom'}", "{user: me}", "{user: me, token_env: T}",
        "{password_env: P}", "{jobs: {a: 0}}", "{jobs: {a: []}}", "{jobs: {a: [x, x]}}", "{jobs: {a: true}}",
        "{series: {a: {query: x, job: nobody}}}", "{series: {a: {query: x, min: 2, max: 1}}}",
        "{series: {a: {query: ''}}}", "{series: {a: {query: x, max: .nan}}}", "{unknown: 1}", "{max_age_seconds: 0}",
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_and_no_secret_is_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, f"monitors: {text}\n")
    assert "hunter2" not in str(refused.value)


def test_it_changes_no_comparison(tmp_path: Path) -> None:
    without, with_it = load(tmp_path, ""), load(tmp_path, "monitors: {prometheus: 'http://p:9090', token_env: T}\n")
    assert comparison_digest(without) == comparison_digest(with_it)
    assert describe(with_it)["monitors"]["prometheus"] == "http://p:9090"


def test_a_guard_needs_a_server_and_its_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"monitors\.prometheus is missing"):
        make_guard(load(tmp_path, ""))
    wanted = load(tmp_path, "monitors: {prometheus: 'http://p:9090', token_env: PROM_TOKEN}\n")
    monkeypatch.delenv("PROM_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="PROM_TOKEN"):
        make_guard(wanted)
    monkeypatch.setenv("PROM_TOKEN", "hunter2")
    guard = make_guard(wanted, no_sql=True)
    assert guard.fallback is None
    assert guard.login.token == "hunter2"
    assert "hunter2" not in repr(guard)
