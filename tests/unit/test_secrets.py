"""Passwords come from where they should, and show nowhere."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import pickle
import time
from pathlib import Path
from urllib.parse import quote, quote_plus

import pymysql.converters
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from migverify import secrets
from migverify.cli.console import ScrubbingFormatter, say
from migverify.errors import ConfigError
from migverify.model import Endpoint
from migverify.secrets import Secret, known_secrets, remember, resolve_password, resolve_variable, scrub, scrub_sentence

NASTY = ["@:/%#'\"\\ ", "hunter2", "p", "🙈é'\n", "***", "[hidden]", "*e", "a\0b", "%41", "&amp;<x>", " lead", "$(id)"]
PASSWORD = st.text(st.characters(exclude_categories=["Cs"]), min_size=1) | st.sampled_from(NASTY)


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", set())


def endpoint(env: str | None = None, command: str | None = None) -> Endpoint:
    return Endpoint("source.eu", "h", 1, "u", password_env=env, password_command=command)


def forms(secret: Secret) -> list[str]:
    return [repr(secret), str(secret), f"{secret}", f"{secret!r:>40}", repr([secret]), repr({"x": secret})]


@given(PASSWORD)
def test_a_secret_does_not_show(text: str) -> None:
    secret = Secret(text)
    assert secret.reveal() == text
    assert forms(secret) == forms(Secret("another"))
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        json.dumps(secret)
    assert copy.deepcopy(secret) is secret
    assert Secret(text) == secret
    assert hash(Secret(text)) == hash(secret)
    assert Secret(text + "x") != secret
    assert secret != text
    assert not hasattr(secret, "__dict__")


def spellings(text: str) -> list[str]:
    return [
        text,
        quote(text, safe=""),
        quote(text),
        quote_plus(text),
        quote(text, safe="").lower() if quote(text, safe="").lower() != quote(text, safe="") else text,
        pymysql.converters.escape_string(text),
        text.replace("'", "''"),
        json.dumps(text)[1:-1],
        repr(text)[1:-1],
        repr(text.encode())[2:-1],
    ]


@given(PASSWORD, st.text(), st.text(), st.integers(0, 9))
@example("*", "*", "*", 0)
@example("ab", "a", "b", 0)
@example("*a", "x*", "a", 0)
def test_scrub_removes_every_spelling(text: str, before: str, after: str, which: int) -> None:
    spelled = spellings(text)[which]
    if which == 4 and any(character.isupper() for character in text):
        return  # lower-casing the whole also changed the text itself
    cleaned = scrub(before + spelled + after, [Secret(text)])
    assert text not in cleaned
    assert spelled not in cleaned


@given(st.lists(PASSWORD, min_size=1, max_size=4), st.text(max_size=5))
def test_scrub_with_several_secrets(texts: list[str], between: str) -> None:
    cleaned = scrub(between.join(texts), [Secret(text) for text in texts])
    assert [text for text in texts if text in cleaned] == []


def test_scrub_keeps_the_rest() -> None:
    assert scrub("user 'app' at db1: hunter2!", [Secret("hunter2")]) == "user 'app' at db1: ***!"
    assert scrub("nothing known", []) == "nothing known"
    assert scrub("nothing known", [Secret("")]) == "nothing known"


@pytest.mark.parametrize(
    ("password", "text", "shown"),
    [
        ("x", "user 'x' does not exist: x, x=x", "user '***' does not exist: ***, ***=***"),
        ("x", "mysql://u:x@h, p%3Ax", "mysql://u:***@h, p%3Ax"),
        ("db1", "db1 of db10 and db1_copy", "*** of db10 and db1_copy"),
    ("é", "é, été", "***, été"), ("!", "gone!", "gone***"), ("a'", "it is a' or ba'", "it is *** or ba'"),
        ("long", "along with long", "a*** with ***"),
    ],
)  # fmt: skip
def test_a_short_secret_in_a_sentence_is_hidden_where_it_is_a_word(password: str, text: str, shown: str) -> None:
    assert scrub(text, [Secret(password)], whole_words=True) == shown


@given(PASSWORD, st.sampled_from([" ", "'", ":", "@", "=", '"', "\n", "("]), st.integers(0, 9))
def test_scrub_of_words_removes_every_value(text: str, around: str, which: int) -> None:
    value = f"{around}{spellings(text)[which]}{around}"
    if which == 4 and any(character.isupper() for character in text):
        return  # lower-casing the whole also changed the text itself
    assert value not in scrub(value, [Secret(text)], whole_words=True)


@pytest.mark.parametrize("password", ["x", "st"])
def test_a_message_of_the_console_stays_readable(password: str, capsys: pytest.CaptureFixture[str]) -> None:
    remember(Secret(password))
    say(f"the file does not exist ({password})")
    assert capsys.readouterr().err == "the file does not exist (***)\n"


@pytest.mark.parametrize(
    ("password", "text", "shown"),
    [
        ("users", """migverify tables diff R --config 'my conf/users'"'"'s.yaml'""", ""),
        ("users", "`migverify runbook check users.yaml --runs users`", ""),
        ("users", "migverify runbook run --set pw=users", "migverify runbook run --set pw=***"),
        ("w", "migverify tables verify --config weak.yaml", ""),
        ("w", "migverify fleet show w.yaml of w", "migverify fleet show w.yaml of ***"),
        ("pw", "migverify status --store mysql://u:pw@h/d pw", "migverify status --store mysql://u:***@h/d ***"),
        ("pw", "migverify status --store 'mysql://h?x=pw'", "migverify status --store 'mysql://h?x=***'"),
    ],
)  # fmt: skip
def test_a_command_keeps_the_files_that_it_was_given(password: str, text: str, shown: str) -> None:
    remember(Secret(password))
    assert scrub_sentence(text) == (shown or text)


@given(PASSWORD)
def test_variables_are_taken_as_they_are(text: str) -> None:
    secrets._known.clear()  # those of earlier examples are looked for as well
    assert resolve_password(endpoint("PW"), {"PW": text}).reveal() == text
    assert text not in scrub(f"a{text}b") or not text


def test_missing_variable_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_password(endpoint("NO_SUCH_PW"), {})
    assert "NO_SUCH_PW" in caught.value.message
    assert "source.eu" in caught.value.message
    assert "export NO_SUCH_PW" in caught.value.hint
    with pytest.raises(ConfigError, match="store_password_env"):
        resolve_variable("X", "store_password_env", {})


def test_no_password_is_an_empty_one() -> None:
    assert not resolve_password(endpoint())
    assert known_secrets() == frozenset()


@pytest.mark.parametrize("text", ["hunter2", "@:/%#'\"\\ ", "🙈é", "two\nlines", " spaces ", "newline\n", "\r"])
def test_command(tmp_path: Path, text: str) -> None:
    file = tmp_path / "secret"
    file.write_text(text + "\n", encoding="utf-8", newline="")
    assert resolve_password(endpoint(command=f"cat '{file}' | cat")).reveal() == text
    assert text not in scrub(f"<{text}>")


def test_command_without_a_newline() -> None:
    assert resolve_password(endpoint(command="printf hunter2")).reveal() == "hunter2"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo hunter2; echo first >&2; echo vault is sealed >&2; exit 3", "exit code 3; its messages are not shown"),
        ("echo hunter2 >&2; exit 3", "exit code 3; its messages are not shown"),
        ("hunter2", "exit code 127, the shell found no such command"),
        ("false", "failed: exit code 1"),
        ("kill -9 $$", "killed by signal 9"),
        ("true", "printed nothing"),
        ("printf '\\377hunter2'", "not UTF-8"),
        ("a\0b", "cannot be started"),
    ],
)
def test_failing_command(command: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_password(endpoint(command=command))
    assert expected in str(caught.value)
    assert "source.eu" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert known_secrets() == frozenset()


def test_a_hanging_command_ends_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "COMMAND_SECONDS", 0.3)
    alive = tmp_path / "alive"
    with pytest.raises(ConfigError, match=r"took longer than 0\.3 seconds"):
        resolve_password(endpoint(command=f"(sleep 1; touch '{alive}') & cat /dev/zero > /dev/null | sleep 60"))
    time.sleep(1.2)
    assert not alive.exists()


def test_log_lines_are_scrubbed() -> None:
    remember(Secret("hunter2"))
    formatter = ScrubbingFormatter("%(message)s")
    try:
        raise ValueError("hunter2 in a traceback")
    except ValueError as error:
        record = logging.LogRecord("x", logging.INFO, "f", 1, "password %s", ("hunter2",), (type(error), error, None))
    assert "hunter2" not in formatter.format(record)
    assert "***" in formatter.format(record)


def test_endpoint_shows_the_name_of_its_secret_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "hunter2")
    asked = endpoint("PW")
    resolve_password(asked)
    assert "hunter2" not in repr(asked) + str(dataclasses.asdict(asked))


@pytest.mark.attack("secrets", "passwords in URLs that hold / @ ? #, or an encoded colon", "are in no message")
def test_no_url_shows_its_password() -> None:
    for login in ("u:hun/ter2", "us%3Aer:hun/ter2", "u:hun@ter2", "u:hun?ter2", "u:hun#ter2", "u%3ahun/ter2"):
        for text in (f"https://{login}@127.0.0.1:1/slow.log", f"no such file: s3://{login}@b/x, mysql://app@db:1"):
            shown = secrets.hide_logins(text)
            assert "hun" not in shown, shown
            assert "ter2" not in shown, shown
    assert secrets.hide_logins("mysql://u:x@h http://h/a@b") == "mysql://u:***@h http://h/a@b"
