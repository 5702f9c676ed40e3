"""Runs scenarios with a Python driver; speaks the protocol of the Java harness, and imports nothing of migverify.

Started by the interpreter that has the drivers that an application uses: ``python python_harness.py work.json``,
passwords in the first line of the standard input. Every side has a thread of its own. One long file,
because it runs where nothing of migverify is installed.
"""

from __future__ import annotations

import asyncio
import decimal
import hashlib
import importlib
import inspect
import json
import platform
import queue
import ssl
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from pathlib import Path
from typing import Any, Callable, Dict, List  # noqa: UP035  (older interpreters run this file)

SHOWN_ROWS = 20
LONG_TEXT = 200
PEP249 = (
    "IntegrityError", "DataError", "ProgrammingError", "NotSupportedError", "InternalError", "OperationalError",
    "InterfaceError", "DatabaseError", "Error",
)  # fmt: skip
Facts = Dict[str, Any]  # noqa: UP006
Steps = List[Facts]  # noqa: UP006


class Misuse(Exception):  # noqa: N818  (an error of the scenario, named as in the Java harness)
    """The scenario asks for something that this program or this driver does not have."""


def value(one: Any) -> Facts:
    """A value with its Python class."""
    if one is None:
        return {"class": None}
    kind = type(one)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return {"class": name, "value": text(one)}


def text(one: Any) -> str:
    """The text of a value; bytes as hex, long ones as hash."""
    if isinstance(one, (bytes, bytearray)):
        shown = "0x" + bytes(one).hex()
    elif isinstance(one, decimal.Decimal):
        shown = format(one, "f")
    elif isinstance(one, (set, frozenset)):
        shown = ",".join(sorted(map(str, one)))
    else:
        shown = str(one)
    if len(shown) <= LONG_TEXT:
        return shown
    return f"{len(shown)} characters, SHA-256 {hashlib.sha256(shown.encode('utf-8', 'replace')).hexdigest()[:16]}"


def rows_of(rows: Any) -> Facts:
    """The first rows, the count, and checksums of all where not all are shown."""
    every = [[value(one) for one in row] for row in rows]
    facts: Facts = {"rows": every[:SHOWN_ROWS], "count": len(every)}
    if len(every) > SHOWN_ROWS:
        hashes = [hashlib.sha256(json.dumps(row, default=str).encode()).hexdigest()[:16] for row in every]
        facts["sequence"] = hashlib.sha256("".join(hashes).encode()).hexdigest()[:16]
        facts["multiset"] = str(sum(int(one, 16) for one in hashes) % 2**64)
    return facts


def exception(error: BaseException) -> Facts:
    """Class, code, state and nearest class of PEP 249; the message is shown, not compared."""
    kind = type(error)
    facts: Facts = {"class": f"{kind.__module__}.{kind.__name__}"}
    code = getattr(error, "errno", None)
    if code is None and error.args and isinstance(error.args[0], int):
        code = error.args[0]
    facts["code"] = code
    facts["sqlstate"] = getattr(error, "sqlstate", None)
    facts["standard"] = next((c.__name__ for c in kind.__mro__ if c.__name__ in PEP249), None)
    facts["told"] = str(error)[:500]
    return facts


class NotThere(Exception):  # noqa: N818
    """A step lacks what an earlier step could not make."""


class Blocking:
    """A driver of PEP 249 as it is."""

    def __init__(self, module: str) -> None:
        self.name = module
        self.module = importlib.import_module(module)

    def connect(self, host: str, port: int, login: Facts, options: Facts) -> Any:
        """Open a connection; ``options`` are in the driver's own words."""
        given: Facts = {"connection_timeout": 5} if self.name == "mysql.connector" else {"connect_timeout": 5}
        if self.name == "MySQLdb":
            given["charset"] = "utf8mb4"
        given.update(tls_of(self.name, login.get("tls", "disabled")))
        given.update(options)
        return self.module.connect(host=host, port=port, user=login["user"], password=login["password"],
                                   database=login["database"], **given)  # fmt: skip

    def cursor(self, connection: Any, stream: bool, prepared: bool) -> Any:
        """Open a cursor: buffered, streaming, or of server-side prepared statements."""
        if self.name == "mysql.connector":
            return connection.cursor(prepared=True) if prepared else connection.cursor(buffered=not stream)
        if stream:
            return connection.cursor(importlib.import_module(f"{self.name}.cursors").SSCursor)
        return connection.cursor()

    def wait(self, result: Any) -> Any:
        """Return the result of a call."""
        return result


class Awaiting(Blocking):
    """A driver of asyncio: calls run on an event loop in a thread of its own."""

    def __init__(self, module: str) -> None:
        super().__init__(module)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def connect(self, host: str, port: int, login: Facts, options: Facts) -> Any:
        """Open a connection."""
        return self.wait(super().connect(host, port, login, options))

    def wait(self, result: Any) -> Any:
        """Return the result of a call or of what it promises."""
        if not inspect.isawaitable(result):
            return result

        async def settled() -> Any:
            return await result

        return asyncio.run_coroutine_threadsafe(settled(), self._loop).result()


def tls_of(driver: str, mode: str) -> Facts:
    """A driver's own words for encryption without or with it: ``disabled``, ``required`` (no certificate check)."""
    words: Dict[str, Facts]  # noqa: UP006
    if mode == "disabled":
        off: Facts = {"ssl_disabled": True}
        words = {"pymysql": off, "MySQLdb": {"ssl_mode": "DISABLED"}, "mysql.connector": off}
        return words.get(driver, {})
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    words = {"MySQLdb": {"ssl_mode": "REQUIRED"}, "mysql.connector": {"ssl_disabled": False}}
    return words.get(driver, {"ssl": context})


def marked(sql: str) -> str:
    """JDBC's ``?`` as the placeholder of Python's drivers."""
    return sql.replace("%", "%%").replace("?", "%s")


def bound(parameters: Any) -> List[Any]:  # noqa: UP006
    """A scenario's parameters as Python values."""
    made: List[Any] = []  # noqa: UP006
    for one in parameters or []:
        if not isinstance(one, dict):
            made.append(one)
        elif one["type"] == "repeat":
            made.append(one["value"] * one["count"])
        elif one["type"] == "bytes":
            made.append(bytes.fromhex(one["value"]))
        elif one["type"] == "unsigned":
            made.append(int(one["value"]))
        elif one["type"] == "decimal":
            made.append(decimal.Decimal(one["value"]))
        elif one["type"] in ("double", "float"):
            made.append(float(one["value"]))
        else:
            made.append(one["value"])
    return made


class Cell:
    """One scenario on one side."""

    def __init__(self, driver: Blocking, cell: Facts, side: Facts, ask: Callable[[Facts], Facts]) -> None:
        self.driver, self.cell, self.side, self.ask = driver, cell, side, ask
        self.options, self.prepared = options_of(cell["url"])
        self.connections: Dict[str, Any] = {}  # noqa: UP006
        self.names: Dict[str, str] = {}  # noqa: UP006
        self.tasks: Dict[str, "Future[Facts]"] = {}  # noqa: UP006, UP037
        self.files: List[str] = []  # noqa: UP006
        self.threads = ThreadPoolExecutor(4)

    def facts(self, step: Facts) -> Facts:
        """Run a step; what the driver raises is what is to be observed."""
        try:
            act = getattr(self, "do_" + step["do"], None)
            if act is None:
                raise Misuse("unknown action " + str(step["do"]))
            found: Facts = act(step)
            return found
        except (Misuse, AttributeError, TypeError, NameError) as error:
            # Not what a server did: this program and the driver do not fit together.
            raise Misuse(f"{step['do']}: {type(error).__name__}: {error}") from error
        except Exception as error:  # noqa: BLE001
            return {"error": exception(error)}

    def connection(self, step: Facts) -> Any:
        """The connection that a step names."""
        name = step.get("on", "c")
        if name not in self.connections:
            raise NotThere("an earlier step did not make " + name)
        return self.connections[name]

    def sql(self, step: Facts) -> str:
        """The statement of a step, with its names filled in."""
        found = str(step["sql"]).replace("${database}", self.side["database"])
        for name, one in self.names.items():
            found = found.replace("${" + name + "}", one)
        return found

    def do_open(self, step: Facts) -> Facts:
        """Connect, through the proxy where the scenario wants one."""
        through = self.cell.get("proxy") and not step.get("plain")
        host, _, port = self.side["proxy" if through else "address"].rpartition(":")
        deadline = time.monotonic() + step.get("within_ms", 0) / 1000
        while True:
            try:
                opened = self.driver.connect(host.strip("[]"), int(port), self.side, self.options)
            except self.driver.module.Error:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                self.connections[step.get("as", "c")] = opened
                return {}

    def do_close(self, step: Facts) -> Facts:
        """Close a connection."""
        connection = self.connection(step)
        del self.connections[step.get("on", "c")]
        self.driver.wait(connection.close())
        return {}

    def do_sql(self, step: Facts) -> Facts:
        """Run a statement without parameters."""
        return self._run(step, self.sql(step), None, prepared=False)

    def do_prepared(self, step: Facts) -> Facts:
        """Run a statement with parameters, or a batch of them."""
        sql = self.sql(step)
        if step.get("batch") is not None:
            return self._batch(step, marked(sql), [bound(one) for one in step["batch"]])
        facts: Facts = {}
        for _ in range(step.get("repeat", 1)):
            facts = self._run(step, marked(sql), bound(step.get("params")), prepared=self.prepared)
        return facts

    def _run(self, step: Facts, sql: str, parameters: Any, *, prepared: bool) -> Facts:
        wait, cursor = self.driver.wait, self.driver.cursor(self.connection(step), False, prepared)
        try:
            wait(cursor.execute(sql) if parameters is None else cursor.execute(sql, tuple(parameters)))
            results: Steps = []
            more = True
            while more:
                if cursor.description:
                    rows = wait(cursor.fetchall())
                    results.append(rows_of(rows))
                else:
                    results.append({"update": cursor.rowcount})
                    if step.get("keys"):
                        results.append({"keys": [value(cursor.lastrowid)]})
                more = not prepared and bool(self._next(cursor))  # a prepared one has a single result
        except Exception:
            self._close_quietly(cursor)
            raise
        wait(cursor.close())
        return {"results": results}

    def _close_quietly(self, cursor: Any) -> None:
        """Close after a failure: what that says would hide what failed."""
        try:
            self.driver.wait(cursor.close())
        except Exception as error:  # noqa: BLE001
            sys.stderr.write(f"closing after a failure: {type(error).__name__}\n")

    def _next(self, cursor: Any) -> Any:
        return self.driver.wait(cursor.nextset()) if hasattr(cursor, "nextset") else None

    def _batch(self, step: Facts, sql: str, batch: Any) -> Facts:
        cursor = self.driver.cursor(self.connection(step), False, self.prepared)
        try:
            self.driver.wait(cursor.executemany(sql, [tuple(one) for one in batch]))
            facts: Facts = {"affected": cursor.rowcount}
            if step.get("keys"):
                facts["keys"] = [value(cursor.lastrowid)]
            return facts
        finally:
            self.driver.wait(cursor.close())

    def do_stream(self, step: Facts) -> Facts:
        """Read row by row; another statement on the connection after the first row where the step has one."""
        facts: Facts = {}
        values: List[str] = []  # noqa: UP006
        stop = step.get("stop_after", sys.maxsize)
        cursor = self.driver.cursor(self.connection(step), True, False)
        try:
            self.driver.wait(cursor.execute(self.sql(step)))
            while len(values) < stop:
                row = self.driver.wait(cursor.fetchone())
                if row is None:
                    break
                values.append(str(row[0]))
                if len(values) == 1 and "meanwhile" in step:
                    facts["meanwhile"] = self.facts({**step, "do": "sql", "sql": step["meanwhile"]})
            self.driver.wait(cursor.close())
        except Misuse:
            raise
        except Exception as error:  # noqa: BLE001
            facts["error"] = exception(error)
        facts["count"] = len(values)
        facts["values"] = hashlib.sha256("\n".join(values).encode()).hexdigest()[:16]
        return facts

    def do_columns(self, step: Facts) -> Facts:
        """What the driver says of a result's columns."""
        cursor = self.driver.cursor(self.connection(step), False, False)
        try:
            self.driver.wait(cursor.execute(self.sql(step)))
            columns = [{"label": c[0], "description": [str(one) for one in c[1:]]} for c in cursor.description or ()]
            self.driver.wait(cursor.fetchall())
            return {"columns": columns}
        finally:
            self.driver.wait(cursor.close())

    def do_set(self, step: Facts) -> Facts:
        """Set autocommit by the driver's own means, other things by SQL."""
        connection, what, wanted = self.connection(step), step["what"], step["value"]
        if what == "autocommit":
            if isinstance(getattr(type(connection), "autocommit", None), property):
                connection.autocommit = wanted
            else:
                self.driver.wait(connection.autocommit(wanted))
        elif what == "isolation":
            level = wanted.removeprefix("TRANSACTION_").replace("_", " ")
            self._run(step, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}", None, prepared=False)
        elif what == "read_only":
            self._run(step, "SET SESSION TRANSACTION READ " + ("ONLY" if wanted else "WRITE"), None, prepared=False)
        else:
            raise Misuse("unknown setting " + what)
        return {}

    def do_commit(self, step: Facts) -> Facts:
        """Commit by the driver."""
        self.driver.wait(self.connection(step).commit())
        return {}

    def do_rollback(self, step: Facts) -> Facts:
        """Roll back by the driver."""
        self.driver.wait(self.connection(step).rollback())
        return {}

    def do_valid(self, step: Facts) -> Facts:
        """Whether the connection answers a ping, without connecting anew."""
        connection = self.connection(step)
        try:
            if self.driver.name in ("pymysql", "asyncmy"):
                self.driver.wait(connection.ping(reconnect=False))
            else:
                connection.ping()
        except Exception:  # noqa: BLE001  (any refusal means no)
            return {"valid": False}
        return {"valid": True}

    def _first(self, step: Facts, sql: str) -> str | None:
        cursor = self.driver.cursor(self.connection(step), False, False)
        try:
            self.driver.wait(cursor.execute(sql))
            row = self.driver.wait(cursor.fetchone())
            return None if row is None or row[0] is None else str(row[0])
        finally:
            self.driver.wait(cursor.close())

    def do_identify(self, step: Facts) -> Facts:
        """Remember the server's id of the connection, or tell whether it is still that one."""
        found = str(self._first(step, "SELECT CONNECTION_ID()"))
        if "as" in step:
            self.names["id:" + step["as"]] = found
            return {}
        return {"same_server_connection": found == self.names.get("id:" + step["same_as"])}

    def do_background(self, step: Facts) -> Facts:
        """Start a step in a thread."""
        self.tasks[step["as"]] = self.threads.submit(self.facts, step["step"])
        return {}

    def do_join(self, step: Facts) -> Facts:
        """Wait for a step in a thread; its facts."""
        try:
            return self.tasks[step["of"]].result(step["within_ms"] / 1000)
        except LateError:
            return {"ended": False}

    def do_wait(self, step: Facts) -> Facts:
        """Wait."""
        time.sleep(step["ms"] / 1000)
        return {}

    def do_until(self, step: Facts) -> Facts:
        """Ask again and again until a query gives a value."""
        deadline = time.monotonic() + step["within_ms"] / 1000
        while True:
            reached = self._first(step, self.sql(step)) == str(step["equals"])
            if reached or time.monotonic() > deadline:
                return {"reached": reached}
            time.sleep(0.05)

    def do_ask(self, step: Facts) -> Facts:
        """Have the controller do something to the network or the server."""
        return self.ask(step)

    def do_call(self, step: Facts) -> Facts:
        """Call a method of the connection by name."""
        method = getattr(self.connection(step), step["method"], None)
        if method is None:
            return {"no_such_method": step["method"]}
        self.driver.wait(method(*step.get("args", [])))
        return {"returned": True}

    def do_pool(self, step: Facts) -> Facts:  # noqa: ARG002
        """Nothing to count: without a pool."""
        return {}

    def do_file(self, step: Facts) -> Facts:
        """Write a file for LOAD DATA LOCAL."""
        with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
            file.write(step["text"])
        self.files.append(file.name)
        self.names["file:" + step["as"]] = file.name
        return {}

    def close(self) -> None:
        """Close what is open; a broken connection may refuse."""
        self.threads.shutdown(wait=False, cancel_futures=True)
        for one in self.connections.values():
            try:
                self.driver.wait(one.close())
            except Exception as error:  # noqa: BLE001
                sys.stderr.write(f"closing: {type(error).__name__}\n")
        for path in self.files:
            Path(path).unlink(missing_ok=True)


def options_of(url: str) -> tuple[Facts, bool]:
    """Split a cell's ``name=value&...`` into keyword arguments, and whether statements are prepared by the server."""
    made: Facts = {}
    for pair in filter(None, url.split("&")):
        name, _, given = pair.partition("=")
        if name == "client_flags":
            # A negative flag is taken away from the driver's own default set.
            made[name] = [int(given)]
        elif given in ("true", "false"):
            made[name] = given == "true"
        else:
            made[name] = float(given) if "." in given else int(given)
    prepared = bool(made.pop("prepared", False))
    return made, prepared


class Harness:
    """Reads commands, runs cells in a thread for each side, writes facts."""

    def __init__(self, work: Facts, passwords: Facts, driver: Blocking) -> None:
        self.driver, self.cells = driver, work["cells"]
        self.sides = {name: {**side, "password": passwords[name]} for name, side in work["sides"].items()}
        self.work: Dict[str, "queue.Queue[int]"] = {name: queue.Queue() for name in self.sides}  # noqa: UP006, UP037
        self.replies: Dict[int, "queue.Queue[Facts]"] = {}  # noqa: UP006, UP037
        self.asked = 0
        self.lock = threading.Lock()

    def emit(self, line: Facts) -> None:
        """Write a line."""
        with self.lock:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

    def serve(self) -> None:
        """Obey until the input ends."""
        threads = [threading.Thread(target=self.obey, args=(side,), daemon=True) for side in self.sides]
        for thread in threads:
            thread.start()
        for line in sys.stdin:
            command = json.loads(line)
            if "reply" in command:
                self.replies[command["reply"]].put(command)
            else:
                self.work[command["side"]].put(command["run"])
        for side in self.sides:
            self.work[side].put(-1)
        for thread in threads:
            thread.join()

    def obey(self, side: str) -> None:
        """Run the cells requested of a side."""
        while (number := self.work[side].get()) >= 0:
            self.emit({"cell": number, "side": side, "end": True, "failure": self.run(number, side)})

    def run(self, number: int, side: str) -> str | None:
        """Run one cell; returns why it could not be run to its end."""
        cell = self.cells[number]
        running = Cell(self.driver, cell, self.sides[side], lambda what: self.ask(side, what))
        try:
            self.prepare(side, cell["setup"])
            for step, one in enumerate(cell["steps"]):
                begin = time.monotonic()
                facts = running.facts(one)
                spent = int((time.monotonic() - begin) * 1000)
                self.emit({"cell": number, "side": side, "step": step, "facts": facts, "ms": spent})
        except Misuse as error:
            return f"scenario: {error}"
        except Exception as error:  # noqa: BLE001  (shown as the reason of an INCONCLUSIVE cell)
            return f"{type(error).__name__}: {error}"
        finally:
            running.close()
        try:
            self.prepare(side, cell["cleanup"])
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"
        return None

    def prepare(self, side: str, statements: Any) -> None:
        """Run setup or clean-up on a connection of its own."""
        if not statements:
            return
        host, _, port = self.sides[side]["address"].rpartition(":")
        connection = self.driver.connect(host.strip("[]"), int(port), self.sides[side], {})
        try:
            cursor = self.driver.cursor(connection, False, False)
            for sql in statements:
                self.driver.wait(cursor.execute(sql))
            self.driver.wait(connection.commit())
        finally:
            self.driver.wait(connection.close())

    def ask(self, side: str, what: Facts) -> Facts:
        """Ask the controller, and wait for its answer."""
        answer: "queue.Queue[Facts]" = queue.Queue()  # noqa: UP037
        with self.lock:
            self.asked += 1
            number = self.asked
            self.replies[number] = answer
        self.emit({**what, "ask": number, "side": side})
        reply = answer.get()
        del self.replies[number], reply["reply"]
        if "refused" in reply:
            raise Misuse(str(reply["refused"]))
        return reply


def main() -> None:
    """Run the work file that the command line names."""
    work = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    passwords = json.loads(sys.stdin.readline())["passwords"]
    try:
        driver = (Awaiting if work["driver"] == "asyncmy" else Blocking)(work["driver"])
    except ImportError as error:
        sys.stdout.write(
            json.dumps({"refused": f"not installed: {work['driver']} ({error}) in {sys.executable}"}) + "\n"
        )
        return
    version = getattr(driver.module, "__version__", "")
    harness = Harness(work, passwords, driver)
    harness.emit({"ready": True, "python": platform.python_version(), "version": str(version)})
    harness.serve()


if __name__ == "__main__":
    main()
