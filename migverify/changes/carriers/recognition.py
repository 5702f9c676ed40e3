"""Which format a message is in, seen from its first bytes and the names of its fields: for messages to people only."""

from __future__ import annotations

import json

OPEN_PROTOCOL_HEAD = (1).to_bytes(8, "big")
"""What the key of an open-protocol message, and a file of such messages, begins with."""

_COMPRESSED = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "LZ4",
    b"\x82SNAPPY": "Snappy",
}
_FIELDS = (
    ({"mysqlType", "isDdl"}, "canal-json"),
    ({"type", "_tidb"}, "canal-json"),
    ({"schema", "payload"}, "debezium"),
    ({"source", "op"}, "debezium"),
    ({"version", "type", "commitTs"}, "TiCDC's simple protocol"),
    ({"database", "table", "type", "xid"}, "maxwell"),
)
_MOST = 1 << 20


def recognized(key: bytes | None, value: bytes | None) -> str:
    """Return the name of the format that a message is in; empty where nothing tells."""
    if (key or b"").startswith(OPEN_PROTOCOL_HEAD) or (value or b"").startswith(OPEN_PROTOCOL_HEAD):
        return "open-protocol"
    raw = value or b""
    for magic, name in _COMPRESSED.items():
        if raw.startswith(magic):
            return f"compressed by {name}"
    if raw.startswith(b"\0") and len(raw) > 5:
        return "Avro, or another encoding of a schema registry"
    if not raw.lstrip().startswith(b"{"):
        return "CSV" if raw.count(b",") > 2 and raw[:3].strip(b'"')[:1] in (b"I", b"U", b"D") else ""
    return _of_fields(raw)


def _of_fields(raw: bytes) -> str:
    if len(raw) > _MOST:
        return ""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return ""
    if isinstance(body, dict):
        for names, name in _FIELDS:
            if names <= body.keys():
                return name
    return ""
