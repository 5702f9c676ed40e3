"""Proves that the documentation builds as a site: every page is in its map, every link and anchor leads somewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder


def test_the_first_page_is_the_readme_and_its_links_are_pages(site: Path) -> None:
    page = (site / "index.html").read_text()
    assert 'href="tutorial.html"' in page
    assert 'href="docs/' not in page


def test_generated_pages_hold_commands_errors_and_metrics(site: Path) -> None:
    reference = {path.stem: path.read_text() for path in (site / "reference").glob("*.html")}
    assert "migverify tables verify" in reference["commands"]
    assert "Verify the tables again" in reference["errors"]
    assert "migverify_watch_table_diverged" in reference["metrics"]


def test_files_of_the_repository_that_pages_name_are_in_the_site(site: Path) -> None:
    assert (site / "files" / "runbooks" / "rehearsal.yaml").is_file()


def test_pages_fetch_nothing_from_elsewhere(site: Path) -> None:
    for path in site.rglob("*.html"):
        for tag in ('<script src="http', '<link rel="stylesheet" href="http', '<img src="http'):
            assert tag not in path.read_text(), f"{path.name} fetches something"
