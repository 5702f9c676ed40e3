"""Run results, append-only: the protocol (``base``), the SQL store, and how one is opened."""
