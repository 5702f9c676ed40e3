"""How a sink sends over HTTPS: one POST of JSON. Nothing that it raises says where it sent to, or what."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from migverify.errors import ConfigError
from migverify.opener import opener
from migverify.runbook.announce.message import Message, SinkError
from migverify.secrets import Secret, remember, scrub

__all__ = ["Poster", "escaped", "fault_of", "is_address", "poster", "refused", "secret_url"]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_AGAIN = frozenset({408, 429})
_SHORT = 15
_ANSWER_BYTES = 1 << 16
_EVERYBODY = re.compile(r"@(?=(?:all|channel|everyone|here)\b)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Poster:
    """Posts to one address. ``words`` returns what the body of a refusal says, without anything secret in it."""

    url: Secret
    to: urllib.request.OpenerDirector
    timeout: float
    words: Callable[[bytes], str] = lambda _: ""

    def post(self, message: Message, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
        """Post JSON, and return the answer's body; raises SinkError."""
        sent = {"Content-Type": "application/json", "User-Agent": "migverify", "Idempotency-Key": message.id}
        try:
            request = urllib.request.Request(  # noqa: S310 - https, or http to this machine: see is_address
                self.url.reveal().strip(), body, {**sent, **(headers or {})}, method="POST"
            )
            with self.to.open(request, timeout=self.timeout) as answer:
                status, found = answer.status, answer.read(_ANSWER_BYTES)
        except urllib.error.HTTPError as error:
            # The body of a refusal may repeat what was sent, or where: only words that are known are taken of it.
            with error:
                raise refused(error.code, error.headers.get("Retry-After"), self._words(error)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise SinkError(fault_of(error)) from None
        if not 200 <= status < 300:
            raise refused(status, None)
        return bytes(found)

    def _words(self, error: urllib.error.HTTPError) -> str:
        try:
            return scrub(self.words(error.read(_ANSWER_BYTES)))
        except (OSError, http.client.HTTPException, ValueError):
            return ""


def poster(
    url: Secret, ca: str | None, timeout: float, sink: str, words: Callable[[bytes], str] = lambda _: ""
) -> Poster:
    """Return what posts to a URL.

    Raises ConfigError: it is no such URL, or its ``ca`` cannot be read.
    """
    if not is_address(url.reveal()):
        raise ConfigError("its URL has to be https (http only to this machine)")
    # A proxy would look for an address of this machine on its own.
    proxies = urlsplit(url.reveal().strip()).hostname not in LOOPBACK
    try:
        return Poster(url, opener(ca, proxies=proxies), timeout, words)
    except OSError as error:
        raise ConfigError(f"sink {sink}: its ca cannot be read: {fault_of(error)}") from None


def is_address(url: str) -> bool:
    """Tell whether a URL may be posted to: HTTPS, and HTTP to this machine."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return False
    return bool((parts.scheme == "http" and parts.hostname in LOOPBACK) or (parts.scheme == "https" and parts.hostname))


def secret_url(url: Secret) -> Secret:
    """Remember also the parts of the URL that are a key by themselves: its path, and a password in it."""
    if is_address(url.reveal()):
        parts = urlsplit(url.reveal().strip())
        # A short word could stand in any text, and would be hidden everywhere.
        for part in (parts.path.strip("/"), parts.path.rstrip("/").rpartition("/")[2], parts.query, parts.password):
            if part and len(part) > _SHORT:
                remember(Secret(part))
    return url


def refused(status: int, wait: str | None, words: str = "") -> SinkError:
    """Return the failure that a status is: final for what another try would not change."""
    final = 300 <= status < 500 and status not in _AGAIN
    return SinkError(f"status {status}{f': {words}' if words else ''}", final=final, wait=_seconds_of(wait))


def _seconds_of(wait: str | None) -> float:
    """Return the seconds that ``Retry-After`` asks for, as a number or a date (RFC 9110, 10.2.3); 0: none, or past."""
    if wait is None:
        return 0.0
    if wait.isascii() and wait.isdigit():
        return float(wait[:9])
    try:
        return max(0.0, parsedate_to_datetime(wait).timestamp() - time.time())
    except (ValueError, OverflowError, OSError):
        return 0.0


def fault_of(error: Exception) -> str:
    """Return the class of a fault: its own text may hold a host or a path that is a secret."""
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return "the certificate is not verified"
    if isinstance(inner, TimeoutError):
        return "no answer in time"
    if isinstance(inner, socket.gaierror):
        return "its name is not resolved"
    if isinstance(inner, OSError) and inner.strerror and not isinstance(inner, ssl.SSLError):
        return inner.strerror
    return type(inner).__name__ if isinstance(inner, Exception) else type(error).__name__


def escaped(text: str) -> str:
    """Return a text as Slack and those like it show it: what wakes everybody wakes nobody, ``<...|...>`` is no link.

    Slack wakes a channel for ``<!channel>``, others for ``@channel``, ``@all``, ``@here`` and ``@everyone``.
    """
    text = _EVERYBODY.sub("@\u200b", text)  # a space without a width
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
