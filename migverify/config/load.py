"""``migverify.yaml`` -> Config, or one ConfigError that says what, where and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from migverify.config.problems import read_document, validate
from migverify.errors import ConfigError

if TYPE_CHECKING:
    from migverify.config.settings import Config

DEFAULT_NAME = "migverify.yaml"


def load_config(path: Path, *, environment: Mapping[str, str] | None = None) -> Config:
    """Read and check a configuration file.

    Parameters
    ----------
    path
        The file. Relative paths in it (an SQLite store, the pause file) start at its folder; TLS files do
        not, because they are opened by whichever machine connects.
    environment
        Variables for ``${NAME}``; the process's own by default.

    Raises
    ------
    ConfigError
        The file is missing, is not YAML, or says something it cannot; the message names file, line and column
        and never shows a value.
    """
    _, document = read_document(
        path,
        "configuration file",
        "Run `migverify init` to write one, or name another with --config.",
        environment=environment,
    )
    if document.data is None:
        raise ConfigError(f"{path}: the file is empty", hint=f"Run `migverify init --force -o {path}`.")
    from migverify.config.settings import Config  # pydantic costs a tenth of a second

    return validate(path, document, Config)
