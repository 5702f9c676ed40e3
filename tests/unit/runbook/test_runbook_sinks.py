"""Sinks: what they send, what they refuse, and that a reason never holds what is secret."""

from __future__ import annotations

import datetime
import io
import os
import socket
import ssl
import threading
import time
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from migverify import secrets
from migverify.runbook.announce.http import refused
from migverify.runbook.announce.sinks import Message, OpenSink, SinkError, open_sink, sink_problems
from migverify.runbook.model import Sink
from tests.unit.runbook_hooks import KEY, Hook, free_port, hook


@pytest.fixture(autouse=True)
def _own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", set())  # what these tests hide must not be hidden in others


MESSAGE = Message("r1/7", "r1", "freeze", "called", "REHEARSAL 3/4 | freeze | CALLED by alice", 1_800_000_000.0)
QUIET = threading.Event()


def webhook(url: str, **more: Any) -> OpenSink:
    return open_sink(Sink(name="chat", kind="webhook", arguments={"url_env": "CHAT_URL", **more}), {"CHAT_URL": url})


def refusal(sink: OpenSink, message: Message = MESSAGE) -> SinkError:
    with pytest.raises(SinkError) as caught:
        sink.send(message, QUIET)
    return caught.value


def test_a_webhook_posts_the_text_as_slack_reads_it() -> None:
    with hook() as there:
        webhook(there.url).send(Message("r1/7", "r1", "", "held", "held: <!channel> & so on", 1.0), QUIET)
        assert there.got == ["held: &lt;!channel&gt; &amp; so on"]
        path, headers = there.requests[0]
        assert path == f"/services/{KEY}"
        assert headers["Content-Type"] == "application/json"
        assert headers["Idempotency-Key"] == "r1/7"


@pytest.mark.parametrize(
    ("status", "final"),
    [(503, False), (429, False), (408, False), (404, True), (302, True)],
)
def test_a_status_says_whether_another_try_makes_sense(status: int, final: bool) -> None:
    with hook(status, headers={"Location": "http://127.0.0.1:1/"}) as there:
        error = refusal(webhook(there.url))
    assert (error.reason, error.final) == (f"status {status}", final)


def test_the_other_side_says_how_long_it_wants_to_be_left_alone() -> None:
    with hook(429, headers={"Retry-After": "7"}) as there:
        assert refusal(webhook(there.url)).wait == 7.0
    for past in ("Fri, 31 Dec 1999 23:59:59 GMT", "-5", "soon", "²", ""):
        assert refused(429, past).wait == 0.0
    later = format_datetime(datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2), usegmt=True)
    assert 7100 < refused(429, later).wait <= 7200


def test_an_answer_that_dribbles_is_left_after_the_timeout() -> None:
    release = threading.Event()

    def dribble(there: socket.socket) -> None:
        with there.accept()[0] as one:
            one.recv(1 << 16)
            for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + b"x" * 9999:
                if release.wait(0.05):
                    return
                try:
                    one.sendall(bytes([byte]))
                except OSError:
                    return  # nobody reads any more

    with socket.create_server(("127.0.0.1", 0)) as there:
        server = threading.Thread(target=dribble, args=(there,))
        server.start()
        error = refusal(webhook(f"http://127.0.0.1:{there.getsockname()[1]}/services/{KEY}", timeout=0.5))
        release.set()
        server.join()
    assert (error.reason, error.final) == ("no answer in time", False)


def test_a_webhook_that_does_not_answer_is_left_after_its_timeout() -> None:
    release = threading.Event()
    with hook(lambda: release.wait(20) and 200) as there:
        error = refusal(webhook(there.url, timeout=0.2))
        release.set()
    assert (error.reason, error.final) == ("no answer in time", False)


def test_a_webhook_that_is_down_says_so_without_its_place() -> None:
    error = refusal(webhook(f"http://127.0.0.1:{free_port()}/services/{KEY}"))
    assert error.reason == "Connection refused"
    assert not error.final
    assert refusal(webhook(f"https://no.such.host.invalid/{KEY}")).reason in (
        "its name is not resolved", "Network is unreachable", "no answer in time", "OSError",
    )  # fmt: skip


@pytest.mark.parametrize(
    "url", ["http://hooks.example.com/services/abcdefgh", "file:///etc/passwd", "", "https://", "http://[::1"]
)
def test_a_webhook_is_https_and_plain_only_to_this_machine(url: str) -> None:
    error = refusal(webhook(url))
    assert error.final
    assert "URL" in error.reason
    assert "example" not in error.reason


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    cert, private = folder / f"{name}.pem", folder / f"{name}.key"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ))  # fmt: skip
    return cert, private


def secure(there: Hook, cert: Path, key: Path) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    there.server.socket = context.wrap_socket(there.server.socket, server_side=True)
    return f"https://localhost:{there.server.server_address[1]}/services/{KEY}"


def test_a_certificate_is_verified(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "localhost")
    with hook() as there:
        url = secure(there, cert, key)
        error = refusal(webhook(url))
        assert (error.reason, error.final) == ("the certificate is not verified", False)
        assert there.got == []
        webhook(url, ca=str(cert)).send(MESSAGE, QUIET)
        assert there.got == [MESSAGE.text]


def test_a_certificate_of_another_host_is_refused(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "elsewhere")
    with hook() as there:
        error = refusal(webhook(secure(there, cert, key), ca=str(cert)))
    assert error.reason == "the certificate is not verified"


def test_a_file_gets_a_line_with_time_and_id(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    sink = open_sink(Sink(name="log", kind="file", arguments={"path": str(path)}))
    sink.send(MESSAGE, QUIET)
    sink.send(MESSAGE, QUIET)
    assert path.read_text().splitlines() == [f"2027-01-15T08:00:00Z [r1/7] {MESSAGE.text}"] * 2


@pytest.mark.attack(
    "runbook", "A link is put where the announcements of a run are appended to a file",
    "it is refused, and the file behind it is untouched",
)  # fmt: skip
def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "log"
    victim.write_text("mine")
    path.symlink_to(victim)
    error = refusal(open_sink(Sink(name="log", kind="file", arguments={"path": str(path)})))
    assert error.reason == "it cannot be written: it is a symbolic link, and is not followed"
    assert victim.read_text() == "mine"


def test_a_file_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    error = refusal(open_sink(Sink(name="log", kind="file", arguments={"path": str(tmp_path / "no" / "log")})))
    assert (error.reason, error.final) == ("it cannot be written: No such file or directory", False)


def test_the_terminal_gets_a_line() -> None:
    stream = io.StringIO()
    open_sink(Sink(name="terminal", kind="stdout"), stdout=stream).send(MESSAGE, QUIET)
    assert stream.getvalue() == f"2027-01-15T08:00:00Z {MESSAGE.text}\n"
    stream.close()
    assert refusal(open_sink(Sink(name="terminal", kind="stdout"), stdout=stream)).reason.startswith(
        "it cannot be written"
    )


def command(script: str, environment: dict[str, str] | None = None, **more: Any) -> OpenSink:
    return open_sink(Sink(name="page", kind="command", arguments={"argv": ["sh", "-c", script], **more}), environment)


def test_a_command_reads_the_text_and_knows_what_it_is_about(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command(f'{{ cat; echo "$MIGVERIFY_ANNOUNCEMENT $MIGVERIFY_STEP $MIGVERIFY_WHAT"; }} > {out}').send(MESSAGE, QUIET)
    assert out.read_text().splitlines() == [MESSAGE.text, "r1/7 freeze called"]


@pytest.mark.attack(
    "runbook", "The executor's environment holds secrets, and a sink's command prints its environment",
    "it gets what hooks get, and what its env and secrets name: nothing else",
)  # fmt: skip
def test_a_command_gets_no_more_of_the_environment_than_hooks_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "MIGVERIFY_TOKEN", "PAGE_KEY", "SOMETHING"):
        monkeypatch.setenv(name, f"value of {name}")
    out = tmp_path / "env"
    sink = command(f"env > {out}", secrets=["PAGE_KEY"], env={"TEAM": "payments"})
    sink.send(MESSAGE, QUIET)
    lines = out.read_text().splitlines()
    assert {"TEAM=payments", "PAGE_KEY=value of PAGE_KEY"} <= set(lines)
    given = {line.partition("=")[0] for line in lines}
    assert not given & {"DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "MIGVERIFY_TOKEN", "SOMETHING"}
    assert {"PATH", "MIGVERIFY_RUN", "MIGVERIFY_ANNOUNCEMENT"} <= given
    [why] = sink_problems(Sink(name="page", kind="command", arguments={"run": "true", "env": ["TEAM"]}))
    assert "env is a map of texts" in why


def test_a_command_line_is_split_into_words_and_no_shell_sees_it(tmp_path: Path) -> None:
    sink = open_sink(Sink(name="page", kind="command", arguments={"run": f"tee '{tmp_path}/a $(b)'"}))
    sink.send(MESSAGE, QUIET)
    assert (tmp_path / "a $(b)").read_text().strip() == MESSAGE.text


def test_a_command_that_fails_says_its_exit_code_and_last_words_without_secrets() -> None:
    sink = command(
        'echo one >&2; echo "no: $PAGE_KEY" >&2; exit 3', {"PAGE_KEY": "hunter2hunter2"}, secrets=["PAGE_KEY"]
    )
    error = refusal(sink)
    assert (error.reason, error.final) == ("exit code 3: no: ***", False)
    assert refusal(open_sink(Sink(name="page", kind="command", arguments={"run": "/no/such/program"}))).reason == (
        "/no/such/program cannot be started: No such file or directory"
    )


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    error = refusal(command(f"sleep 600 & echo $! > {pid}; wait", timeout=0.3))
    assert error.reason == "it took longer than 0.3 s"
    assert gone(int(pid.read_text()))


def test_a_command_is_ended_when_nobody_waits_for_it() -> None:
    canceled = threading.Event()
    threading.Timer(0.1, canceled.set).start()
    with pytest.raises(SinkError, match="ended from here"):
        command("sleep 600").send(MESSAGE, canceled)


def gone(pid: int) -> bool:
    for _ in range(500):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("sink", "words"),
    [
        (Sink(name="s", kind="file").model_copy(update={"kind": "pigeon"}), "there is no kind pigeon"),
        (Sink(name="s", kind="file"), "path is missing"),
        (Sink(name="s", kind="webhook"), "url_env is missing"),
        (
            Sink(name="s", kind="webhook", arguments={"url": "https://example.com/secret"}),
            "a webhook's URL is a secret: say url_env",
        ),
        (Sink(name="s", kind="webhook", arguments={"url_env": "NO_SUCH_VARIABLE"}), "NO_SUCH_VARIABLE is not set"),
        (Sink(name="s", kind="command"), "run is missing"),
        (Sink(name="s", kind="command", arguments={"run": "unbalanced '"}), "run is missing"),
        (Sink(name="s", kind="command", arguments={"argv": ["a", 1]}), "run is missing"),
        (
            Sink(name="s", kind="command", arguments={"run": "x", "secrets": ["NO_SUCH_VARIABLE"]}),
            "NO_SUCH_VARIABLE is not set",
        ),
        (Sink(name="s", kind="stdout", arguments={"path": "x"}), "there is no argument path"),
        (Sink(name="s", kind="file", arguments={"path": "x", "timeout": 5}), "there is no argument timeout"),
        (Sink(name="s", kind="webhook", arguments={"url_env": "HOME", "timeout": -1}), "timeout is a number"),
        (Sink(name="s", kind="webhook", arguments={"url_env": "HOME", "timeout": float("nan")}), "timeout is a number"),
        (Sink(name="s", kind="webhook", arguments={"url_env": "HOME", "timeout": True}), "timeout is a number"),
        (Sink(name="s", kind="webhook", arguments={"url_env": "HOME", "ca": "/no/such.pem"}), ""),
    ],
)
def test_a_sink_that_is_defined_wrongly_refuses_every_text_and_says_why(sink: Sink, words: str) -> None:
    if words:
        assert any(words in problem for problem in sink_problems(sink))
    error = refusal(open_sink(sink))
    assert error.final
    assert words in error.reason
    assert "example.com" not in error.reason


@pytest.mark.parametrize(
    "sink",
    [
        Sink(name="s", kind="stdout"),
        Sink(name="s", kind="file", arguments={"path": "x"}),
        Sink(name="s", kind="webhook", arguments={"url_env": "U", "timeout": 3}),
        Sink(name="s", kind="command", arguments={"run": "a b", "secrets": ["U"]}),
    ],
)
def test_a_sink_that_is_defined_well_has_no_problems(sink: Sink) -> None:
    assert sink_problems(sink, {"U": "https://example.com/x"}) == []
    assert "U" not in os.environ
