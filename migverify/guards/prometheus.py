"""Prometheus' HTTP API: what it answers, or why it does not.

Whoever asks wants to know whether the monitoring sees anything, so every doubt is a ReadError: no answer, one that
is no JSON, an error, a warning (part of the data was not there).
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from migverify.errors import ConfigError, ReadError
from migverify.opener import opener

MOST_BYTES = 32 << 20
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of an answer: its labels and its value, which may be NaN."""

    labels: Mapping[str, str]
    value: float

    @property
    def name(self) -> str:
        """The labels that tell it apart, for a reader."""
        inner = ", ".join(f'{k}="{v}"' for k, v in sorted(self.labels.items()) if k != "__name__")
        return self.labels.get("__name__", "") + (f"{{{inner}}}" if inner else "")


@dataclass(frozen=True, slots=True)
class PrometheusLogin:
    """How to authenticate: basic with ``user`` and ``password``, or ``token``; ``ca`` a PEM file."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca: str | None = None


class Prometheus:
    """One server. Once it did not answer it is asked no more: make a new one for the next asking.

    Parameters
    ----------
    url
        ``http://host:9090``, without a slash at the end.
    timeout
        Seconds for one answer.

    Raises
    ------
    ConfigError
        the file of the certificate authority cannot be read.
    """

    def __init__(self, url: str, timeout: float, login: PrometheusLogin | None = None) -> None:
        self.url, self.timeout = url, timeout
        self.silent = ""
        login = login or PrometheusLogin()
        try:
            # Without the proxies of the environment: what is asked is whether the monitoring is reached from here.
            self._opener = opener(login.ca)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ConfigError(f"monitors.ca: {login.ca} cannot be read: {reason}") from None
        self._headers = {"Accept": "application/json", "User-Agent": "migverify"}
        if login.user is not None:
            pair = f"{login.user}:{login.password or ''}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair).decode('ascii')}"
        elif login.token is not None:
            self._headers["Authorization"] = f"Bearer {login.token}"

    def request(self, path: str, **parameters: str) -> str:
        """Return a request as text that shows an answer again."""
        query = f"?{urlencode(parameters)}" if parameters else ""
        return f"GET {self.url}/api/v1/{path}{query}"

    def get(self, path: str, **parameters: str) -> Any:
        """Ask, and return the ``data`` of the answer.

        Raises
        ------
        ReadError
            there is no whole answer.
        """
        if self.silent:
            raise ReadError(self.silent)
        status, text = self._read(self.request(path, **parameters).removeprefix("GET "))
        try:
            reported = json.loads(text)
        except ValueError:
            raise ReadError(f"HTTP {status}, and no JSON: {_start(text)}") from None
        if not isinstance(reported, dict) or reported.get("status") != "success":
            words = reported.get("error") if isinstance(reported, dict) else None
            raise ReadError(f"HTTP {status}: {words or _start(text)}")
        if reported.get("warnings"):
            raise ReadError(f"the answer is not whole: {'; '.join(str(word) for word in reported['warnings'])}")
        if status != 200:
            raise ReadError(f"HTTP {status}")
        return reported.get("data")

    def vector(self, query: str) -> list[Sample]:
        """Evaluate an expression now; a scalar is a sample without labels.

        Raises
        ------
        ReadError
            there is no whole answer, or it holds no numbers.
        """
        data = self.get("query", query=query)
        kind = data.get("resultType") if isinstance(data, dict) else None
        try:
            if kind == "scalar":
                return [Sample({}, _number(data["result"]))]
            if kind == "vector":
                return [Sample(dict(one["metric"]), _number(one["value"])) for one in data["result"]]
        except (KeyError, TypeError, ValueError, IndexError):
            raise ReadError("the answer holds something else than numbers (a native histogram?)") from None
        raise ReadError(f"the answer is a {kind}, not an instant vector or a scalar")

    def _read(self, url: str) -> tuple[int, bytes]:
        deadline = time.monotonic() + self.timeout
        request = urllib.request.Request(url, headers=self._headers)  # noqa: S310 - http(s) is checked in the file
        try:
            try:
                answer = self._opener.open(request, timeout=self.timeout)
            except urllib.error.HTTPError as error:
                answer = error  # its body says why
            with answer:
                pieces, size = [], 0
                while piece := answer.read(_PIECE):
                    pieces.append(piece)
                    size += len(piece)
                    if size > MOST_BYTES:
                        raise ReadError(f"the answer is larger than {MOST_BYTES >> 20} MiB")
                    if time.monotonic() > deadline:
                        raise TimeoutError("timed out")  # each read is in time, and all of them are not
                return int(answer.status or 0), b"".join(pieces)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            self.silent = f"Prometheus does not answer: {' '.join(str(reason).split()) or type(error).__name__}"
            hint = "Check monitors.prometheus, that it runs, and firewalls between."
            raise ReadError(self.silent, hint=hint) from None


def _number(pair: Any) -> float:
    return float(pair[1])


def _start(text: bytes) -> str:
    return " ".join(text[:80].decode("utf-8", "replace").split()) or "an empty answer"


def known(value: float) -> bool:
    """Whether a value is one: NaN and infinities come from samples that say nothing, or from a division by zero."""
    return math.isfinite(value)
