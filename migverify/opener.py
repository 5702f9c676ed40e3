"""How this package asks over HTTP: without redirects, in a limited time, and by no proxy of the environment unasked."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
import urllib.request
from typing import Any

__all__ = ["opener"]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect leads to a login page, or carries a text or a credential to a place that nobody named."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""
        return


class _Whole(io.RawIOBase):
    """What a socket receives until a moment: its own timeout begins anew with every byte, and an answer may dribble."""

    def __init__(self, raw: Any, sock: socket.socket, seconds: float) -> None:
        self._raw, self._sock, self._until = raw, sock, time.monotonic() + seconds

    def readable(self) -> bool:
        """Return true."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what is there; raises TimeoutError when the time is over."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer is not whole")
        self._sock.settimeout(left)
        read: int | None = self._raw.readinto(buffer)
        return read

    def close(self) -> None:
        """Close the socket too."""
        self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """An answer that has to be whole within the timeout of its connection."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        seconds = sock.gettimeout()
        if seconds is not None:
            self.fp: Any = io.BufferedReader(_Whole(self.fp.detach(), sock, seconds))


class _Http(http.client.HTTPConnection):
    response_class = _Answer


class _Https(http.client.HTTPSConnection):
    response_class = _Answer


class _HttpHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open it in a limited time."""
        return self.do_open(_Http, req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, tls: ssl.SSLContext) -> None:
        super().__init__(context=tls)
        self._tls = tls

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Open it in a limited time."""
        return self.do_open(_Https, req, context=self._tls)


def opener(ca: str | None = None, *, proxies: bool = False) -> urllib.request.OpenerDirector:
    """Return what opens a URL; a redirect is the answer itself, as an ``HTTPError``.

    The ``timeout`` of a request is for its connection, and once more for the whole answer.

    Parameters
    ----------
    ca
        PEM file of the certificate authority; None: those of the system.
    proxies
        Go through the proxies that the environment names.

    Raises
    ------
    OSError
        the file cannot be read or holds no certificate (``ssl.SSLError``).
    """
    handlers: list[urllib.request.BaseHandler] = [
        _NoRedirect(),
        _HttpHandler(),
        _HttpsHandler(ssl.create_default_context(cafile=ca)),
    ]
    if not proxies:
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)
