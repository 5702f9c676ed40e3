"""An operator and a sensor of Airflow 3 for migverify; copy this file into ``plugins/`` or beside the DAG.

Both run the command `migverify`, which has an environment of its own (``pipx install``, an image): its packages and
Airflow's need not agree. Passwords come from Airflow's connections, go to the command in its environment, and are in no
command line, log or XCom.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from airflow.sdk.log import mask_secret

MATCH, MISMATCH, USAGE, INCONCLUSIVE = 0, 1, 2, 3
MEANING = {
    MISMATCH: "MISMATCH: source and target differ",
    USAGE: "migverify refused the command line or the configuration",
    INCONCLUSIVE: "INCONCLUSIVE: something was not read, so nothing is proved",
}


class MigverifyCommand:
    """What operator and sensor share: the command, and the passwords that it gets.

    Parameters
    ----------
    executable
        The command, for instance ``/opt/migverify/bin/migverify``.
    config
        Path of migverify.yaml; it names the variables of the passwords.
    passwords
        Name of a variable, and the id of the Airflow connection whose password it gets.
    store
        URL of the run store; default: the configuration's.
    """

    def __init__(self, executable: str, config: str, passwords: Mapping[str, str], store: str | None) -> None:
        self._executable, self._config, self._passwords, self._store = executable, config, dict(passwords), store
        self._process: subprocess.Popen[str] | None = None

    def run(self, log: Any, *words: str) -> tuple[int, dict[str, Any]]:
        """Return exit code and JSON of a command; what it says while it runs goes to the log."""
        command = [self._executable, *words, "--config", self._config, "--json"]
        if self._store is not None:
            command += ["--store", self._store]
        log.info("%s", shlex.join(command))
        secrets = self._secrets()
        self._process = subprocess.Popen(
            command, env={**os.environ, **secrets}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        printed, said = self._process.communicate()
        for secret in secrets.values():  # migverify never says one; this log does not depend on it
            said = said.replace(secret, "***")
        for line in said.splitlines():
            log.info("%s", line)
        try:
            document = json.loads(printed) if printed.strip() else {}
        except ValueError:
            document = {}
        return self._process.returncode, document

    def interrupt(self) -> None:
        """Ask the command to end as Ctrl-C does: what it found is kept, and the run can be resumed."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)

    def _secrets(self) -> dict[str, str]:
        secrets = {}
        for variable, connection in self._passwords.items():
            password = BaseHook.get_connection(connection).password
            if not password:
                raise AirflowFailException(f"connection {connection} has no password for {variable}")
            mask_secret(password)
            secrets[variable] = password
        return secrets


class VerifyTablesOperator(BaseOperator):
    """Runs ``migverify tables verify``; returns run id and verdict.

    MATCH (0) succeeds. MISMATCH (1) and a refused configuration (2) fail at once, since another attempt gives the
    same. INCONCLUSIVE (3), an interruption and a crash fail so that Airflow's retries take place; they never succeed.

    Parameters
    ----------
    tables
        Patterns of source tables; none: all of the configuration.
    since
        The run to rest on, for a nightly proof: ``last`` or an id.
    """

    template_fields: Sequence[str] = ("config", "tables", "since", "store")

    def __init__(
        self, *, config: str, tables: Sequence[str] = (), since: str | None = None, store: str | None = None,
        executable: str = "migverify", passwords: Mapping[str, str] | None = None, **arguments: Any,
    ) -> None:  # fmt: skip
        super().__init__(**arguments)
        self.config, self.tables, self.since, self.store = config, tables, since, store
        self.executable, self.passwords = executable, dict(passwords or {})
        self._command: MigverifyCommand | None = None

    def execute(self, context: Any) -> dict[str, Any]:
        """Verify, and decide the task by the exit code alone."""
        del context
        self._command = MigverifyCommand(self.executable, self.config, self.passwords, self.store)
        words = ["tables", "verify", "--engine", "local", "--quiet"]
        words += [word for table in self.tables for word in ("--tables", table)]
        words += ["--since", self.since] if self.since else []
        code, document = self._command.run(self.log, *words)
        run = document.get("run_id") or "last"
        if code == MATCH and document.get("verdict") == "MATCH":
            return {"run_id": run, "verdict": "MATCH"}
        meaning = MEANING.get(code, f"migverify ended with {code} and no verdict")
        if code in (MISMATCH, USAGE):
            raise AirflowFailException(f"{meaning}. Next: migverify tables diff {run}")
        raise AirflowException(f"{meaning}. Next: migverify report {run}")

    def on_kill(self) -> None:
        """Interrupt the run when the task is cleared or times out."""
        if self._command is not None:
            self._command.interrupt()


class WatchMatchSensor(BaseSensorOperator):
    """Waits until the watch of the configuration is alive and says MATCH; fails at once on MISMATCH.

    It reads the store and the ledgers of the watch (`migverify status`), so the worker must see the folder of the
    configuration that the watch uses. A watch that is not there, was killed or said nothing for a minute is waited for.

    Parameters
    ----------
    direction
        ``forward``, or ``reverse`` for a rollback that must stay safe.
    """

    template_fields: Sequence[str] = ("config", "store")

    def __init__(
        self, *, config: str, store: str | None = None, direction: str = "forward", executable: str = "migverify",
        passwords: Mapping[str, str] | None = None, **arguments: Any,
    ) -> None:  # fmt: skip
        super().__init__(**arguments)
        self.config, self.store, self.direction = config, store, direction
        self.executable, self.passwords = executable, dict(passwords or {})

    def poke(self, context: Any) -> bool:
        """Tell whether the verdict is MATCH now."""
        del context
        command = MigverifyCommand(self.executable, self.config, self.passwords, self.store)
        code, document = command.run(self.log, "status")
        if code == USAGE:
            raise AirflowFailException(MEANING[USAGE])
        watch = (document.get("directions") or {}).get(self.direction)
        if code != 0 or watch is None:
            self.log.info("no %s watch is known (exit code %s)", self.direction, code)
            return False
        why = watch["reason"] or watch["state"]
        self.log.info("%s %s, as of %s, %s", watch["run"], watch["verdict"], watch["as_of"], why)
        if watch["verdict"] == "MISMATCH":
            raise AirflowFailException(f"{MEANING[MISMATCH]}. Next: migverify tables diff {watch['run']}")
        return bool(watch["verdict"] == "MATCH" and watch["state"] == "alive")
