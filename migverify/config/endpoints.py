"""How one server is reached: the keys under ``source``, ``sources``, ``target`` and ``endpoints``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from migverify.config.fields import NAME, EndpointUrl, Seconds, SessionValue, Snapshot, Strict, VariableName
from migverify.config.urls import Address, parse_endpoint_url
from migverify.model import READS_NOW, Endpoint, Tls, default_tls_mode


class TlsSettings(Strict):
    """Encryption of the connection to an endpoint."""

    mode: Literal["disabled", "preferred", "required", "verify-ca", "verify-identity"] | None = Field(
        default=None,
        description="`disabled`, `preferred` (encrypt when the server offers it), `required` (encrypt, do"
        " not check the certificate), `verify-ca` or `verify-identity`. Default: `verify-identity`; for a host on"
        " this machine (`localhost`, 127.0.0.1, ::1) without `ca` and `cert`: `preferred`.",
    )
    ca: str | None = Field(default=None, description="PEM file of the certificate authority. Default: the system's.")
    cert: str | None = Field(default=None, description="PEM file of the client certificate.")
    key: str | None = Field(default=None, description="PEM file of the client's private key.")
    allow_cleartext_password: bool = Field(
        default=False,
        description="Send the password itself where the server asks for it and its certificate is not verified, or"
        " asks by `mysql_clear_password` (LDAP, PAM, IAM).",
    )

    @model_validator(mode="after")
    def _consistent(self) -> TlsSettings:
        if self.ca and self.mode in ("disabled", "preferred", "required"):
            raise ValueError(f"mode {self.mode} does not check a certificate, so `ca` would do nothing; use verify-ca")
        if self.cert and self.mode in ("disabled", "preferred"):
            raise ValueError(f"mode {self.mode} does not send a client certificate; use required or verify-identity")
        if self.key and not self.cert:
            raise ValueError("`key` needs `cert`")
        return self

    def for_host(self, host: str) -> Tls:
        """Return the encryption of a connection to ``host``, defaults filled in."""
        mode = self.mode or default_tls_mode(host, verifies=bool(self.ca or self.cert))
        return Tls(mode, self.ca, self.cert, self.key, self.allow_cleartext_password)


class EndpointSettings(Strict):
    """How to reach one server: either `url`, or `host`, `port` and `user`."""

    url: EndpointUrl | None = Field(
        default=None,
        description="`mysql://user@host:3306` or `tidb://user@host:4000`; special characters"
        " percent-encoded. A password in it is refused.",
    )
    host: str | None = Field(default=None, min_length=1, description="Host name or address, instead of `url`.")
    port: int | None = Field(default=None, ge=1, le=65535, description="Port, with `host`. Default: 3306.")
    user: str | None = Field(default=None, min_length=1, description="User name, with `host`.")
    password_env: VariableName | None = Field(
        default=None, description="Name of the environment variable that holds the password."
    )
    password_command: str | None = Field(
        default=None,
        min_length=1,
        description="Shell command that prints the password, instead of `password_env`.",
    )
    tls: TlsSettings = Field(default_factory=TlsSettings, description="Encryption.")
    connections: int = Field(
        default=4, ge=1, le=1024, description="The most connections one run opens to this endpoint."
    )
    query_seconds: Seconds = Field(default=0.0, description="Time limit of one query in seconds; 0 = none.")
    snapshot: Snapshot | None = Field(
        default=None,
        description="TiDB: read as of this time or TSO (`tidb_snapshot`); `now` takes one and holds it for the run.",
    )
    resource_group: str | None = Field(default=None, min_length=1, description="TiDB: resource group of the sessions.")
    low_priority: bool = Field(default=True, description="TiDB: let other queries go first.")
    session: dict[str, SessionValue] = Field(
        default_factory=dict, description="Further session variables to set, as `name: value`."
    )

    @model_validator(mode="after")
    def _consistent(self) -> EndpointSettings:
        if self.url and (self.host or self.port or self.user):
            raise ValueError("give either `url`, or `host`, `port` and `user`")
        if not self.url and not self.host:
            raise ValueError("`url` is missing, for example mysql://user@host:3306")
        if not self.url and not self.user:
            raise ValueError("`user` is missing")
        if self.password_env and self.password_command:
            raise ValueError("give either `password_env` or `password_command`")
        return self

    @field_validator("session")
    @classmethod
    def _session_names(cls, value: dict[str, str]) -> dict[str, str]:
        if any(not NAME.fullmatch(name) for name in value):
            raise ValueError("names of session variables hold letters, digits and _")
        if pinned := sorted(_PINNED & {name.lower() for name in value}):
            raise ValueError(f"{', '.join(pinned)}: pinned, as sessions read what is committed now (see `snapshot`)")
        return value

    def named(self, name: str) -> Endpoint:
        """Return the endpoint of that name, its URL taken apart and the defaults of its host filled in."""
        address = (
            parse_endpoint_url(self.url) if self.url else Address(self.host or "", self.port or 3306, self.user or "")
        )
        return Endpoint(
            name=name,
            host=address.host,
            port=address.port,
            user=address.user,
            password_env=self.password_env,
            password_command=self.password_command,
            tls=self.tls.for_host(address.host),
            connections=self.connections,
            query_seconds=self.query_seconds,
            snapshot=self.snapshot,
            resource_group=self.resource_group,
            low_priority=self.low_priority,
            session=tuple(self.session.items()),
        )


_PINNED = {*READS_NOW, "transaction_isolation", "tx_isolation", "autocommit"}
