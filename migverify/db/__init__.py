"""The one way to a database: sessions, pools, snapshots, the state of a server, and reads of a table."""
