"""What the site has beside the pages of docs/: README as its first page, generated reference pages, linked files.

mkdocs calls the functions by their names. Nothing here is written into docs/.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))

import reference  # noqa: E402 - beside this file, which is no package

# Pages made of a file outside of docs/: where they are in the site.
ADOPTED = {"README.md": "index.md", "bench/README.md": "benchmarks.md"}
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages and the repository's files that pages link to."""
    texts = {path: (ROOT / source).read_text() for source, path in ADOPTED.items()}
    texts |= reference.pages()
    for path, text in texts.items():
        files.append(File.generated(config, path, content=text))
    linked = {target for file in files.documentation_pages() for target in _outside(file, texts)}
    for target in sorted(linked):
        if target.is_dir():
            files.append(File.generated(config, _in_site(target), content=_listing(target)))
            continue
        files.append(File.generated(config, f"files/{target.relative_to(ROOT)}", abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave docs/ to where the site has their targets."""
    del config, files
    if page.file.src_uri.startswith("files/"):
        return markdown
    here = _folder(page.file.src_uri)
    depth = page.file.src_uri.count("/")

    def moved(found: re.Match[str]) -> str:
        target = (here / found[1]).resolve()
        return f"]({'../' * depth}{_in_site(target)}{found[2] or ''})"

    return LINK.sub(moved, markdown)


def _folder(uri: str) -> Path:
    """Return the folder that links of a page start from: its own in the repository."""
    for source, path in ADOPTED.items():
        if uri == path:
            return (ROOT / source).parent
    return (ROOT / "docs" / uri).parent


def _in_site(target: Path) -> str:
    """Return the place of a repository's file in the site."""
    name = str(target.relative_to(ROOT))
    if name in ADOPTED:
        return ADOPTED[name]
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return f"files/{name}" if target.is_file() else f"files/{name}/index.md"


def _listing(folder: Path) -> str:
    names = sorted(path.name for path in folder.glob("*.yaml"))
    return f"# {folder.relative_to(ROOT)}\n\n" + "\n".join(f"- [{name}]({name})" for name in names) + "\n"


def _outside(file: File, texts: dict[str, str]) -> set[Path]:
    """Return the files outside of docs/ that a page links to; a folder is all YAML in it."""
    text = texts.get(file.src_uri) or Path(file.abs_src_path or "").read_text()
    found: set[Path] = set()
    for match in LINK.finditer(text):
        target = (_folder(file.src_uri) / match[1]).resolve()
        if target.is_relative_to(ROOT / "docs") or str(target.relative_to(ROOT)) in ADOPTED:
            continue
        found |= {target} if target.is_file() else {target, *target.glob("*.yaml")}
    return found
