"""The catalogue's YAML files -> entries."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from migverify.config.problems import problem_at, refuse, validate
from migverify.config.yaml_text import YamlDocument, read_yaml
from migverify.workload.catalogue.match import Catalogue
from migverify.workload.catalogue.model import CatalogueDocument, CatalogueEntry

Document = TypeVar("Document", bound=BaseModel)


def data_files() -> list[str]:
    """Return the names of the entries' files, sorted."""
    folder = resources.files("migverify.workload.catalogue").joinpath("data")
    return sorted(one.name for one in folder.iterdir() if one.name.endswith(".yaml") and one.name != "errors.yaml")


def read_data(name: str, root: type[Document]) -> tuple[YamlDocument, Document]:
    """Read one file of the package's data.

    Raises
    ------
    ConfigError
        the file is damaged; the message says where.
    """
    text = resources.files("migverify.workload.catalogue").joinpath(f"data/{name}").read_text(encoding="utf-8")
    document = read_yaml(text, variables=False)
    return document, validate(Path(name), document, root)


@lru_cache(maxsize=1)
def load() -> Catalogue:
    """Return the package's catalogue, read once.

    Raises
    ------
    ConfigError
        an entry is damaged, or an id is used twice; the message says where.
    """
    entries: dict[str, CatalogueEntry] = {}
    for name in data_files():
        document, file = read_data(name, CatalogueDocument)
        for number, entry in enumerate(file.entries):
            if entry.id in entries:
                place = document.place(("entries", number))
                refuse(Path(name), [problem_at(Path(name), place, f"the id {entry.id} is used twice")])
            entries[entry.id] = entry.model_copy(update={"seen_on": entry.seen_on or file.seen_on})
    return Catalogue(tuple(sorted(entries.values(), key=lambda entry: entry.id)))
