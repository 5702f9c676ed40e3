"""How this package asks over HTTP: without redirects, and without the proxies of the environment unless it is said."""

from __future__ import annotations

import ssl
import urllib.request
from typing import Any

__all__ = ["opener"]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect leads to a login page, or carries a text or a credential to a place that nobody named."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""
        return


def opener(ca: str | None = None, *, proxies: bool = False) -> urllib.request.OpenerDirector:
    """Return what opens a URL; a redirect is the answer itself, as an ``HTTPError``.

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
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=ca)),
    ]
    if not proxies:
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)
