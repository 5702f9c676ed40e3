"""Run results, append-only: ``open`` opens a store, ``results`` has what it holds, ``journals`` those of runbooks."""
