"""The documentation says what the program does: commands, types, links, words."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.pages import command_lines, page_statements, page_table, support_table, type_page

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "bench" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_type_page_is_the_type_table() -> None:
    page = ROOT / "docs" / "types.md"
    if os.environ.get("REGEN") == "1":
        page.write_text(type_page())
    assert page.read_text() == type_page(), "run the tests once with REGEN=1 and look at the change"


def test_the_page_of_expectations_lists_what_runs() -> None:
    page = ROOT / "docs" / "expectations.md"
    begin, end = "do not edit -->\n", "<!-- end of the support table -->"
    head, _, rest = page.read_text().partition(begin)
    text = head + begin + "\n" + support_table() + "\n" + end + rest.partition(end)[2]
    if os.environ.get("REGEN") == "1":
        page.write_text(text)
    assert page.read_text() == text, "run the tests once with REGEN=1 and look at the change"


DOCUMENTED = sorted(
    {line if line.split()[0] != "lab" else " ".join(line.split()[:2]) for line in command_lines(added=True)}
)


def test_every_command_is_documented() -> None:
    pages = "\n".join(page.read_text() for page in PAGES)
    missing = [command for command in DOCUMENTED if f"migverify {command}" not in pages]
    assert not missing, "no page of docs/ shows these commands"


def test_links_lead_somewhere_and_words_are_plain() -> None:
    wrong = []
    for page in PAGES:
        text = page.read_text()
        links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)
        wrong += [f"{page.name} links to {target}" for target in links if not (page.parent / target).exists()]
        prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
        words = re.findall(r"\b(simply|just|obviously|upstream|downstream)\b", prose, flags=re.IGNORECASE)
        wrong += [f"{page.name} says {word}" for word in words]
    assert not wrong


def test_no_blank_line_breaks_a_table() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        lines = ["", *page.read_text(encoding="utf-8").splitlines(), ""]
        for number, (before, line, after) in enumerate(zip(lines, lines[1:], lines[2:], strict=False), 1):
            is_head = line.startswith("|") and not before.startswith("|")
            assert not is_head or after.startswith(("|-", "| -", "|:", "| :")), f"{page.name}:{number}: {line}"


def test_the_map_of_the_site_lists_every_page() -> None:
    site = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f": {page.name}" in site, f"mkdocs.yml does not lead to docs/{page.name}"


def test_the_readme_shows_rows_of_the_fault_matrix() -> None:
    readme = (ROOT / "README.md").read_text()
    matrix = (ROOT / "docs" / "faults.md").read_text()
    block = readme.partition("<!-- faults -->")[2].partition("<!-- /faults -->")[0].strip()
    names = re.findall(r"^\| `([a-z0-9-]+)` \|", block, flags=re.MULTILINE)
    lines = [line for line in matrix.splitlines() if line.startswith("| `")]
    rows = {line.split("`")[1]: line for line in reversed(lines)}  # the first table of the page sums up the others
    if os.environ.get("REGEN") == "1":
        head = [line for line in matrix.splitlines() if line.startswith(("| fault |", "|---"))][:2]
        fresh = "\n".join([*head, *(rows[name] for name in names)])
        readme = readme.replace(block, fresh)
        (ROOT / "README.md").write_text(readme)
        block = fresh
    assert len(names) >= 8
    assert [line for line in block.splitlines() if line.startswith("| `")] == [rows[name] for name in names]


NEEDS_MARKS = ("<!-- needs -->\n", "<!-- /needs -->")


def test_the_page_of_privileges_is_the_table_of_needs() -> None:
    page = ROOT / "docs" / "privileges.md"
    before, rest = page.read_text().split(NEEDS_MARKS[0])
    _, after = rest.split(NEEDS_MARKS[1])
    fresh = before + NEEDS_MARKS[0] + page_table() + NEEDS_MARKS[1] + after
    if os.environ.get("REGEN") == "1":
        page.write_text(fresh)
    assert page.read_text() == fresh, "run the tests once with REGEN=1 and look at the change"


@pytest.mark.parametrize("side", ["source", "target"])
def test_the_statements_of_the_check_are_those_of_the_table(side: str) -> None:
    from migverify.model import Flavor, Side

    page, mark = ROOT / "docs" / "check.md", f"<!-- grants: {side} -->\n```sql\n"
    before, rest = page.read_text().split(mark)
    flavor = Flavor.MYSQL if side == "source" else Flavor.TIDB
    fresh = before + mark + page_statements("guard settings", Side(side), flavor) + rest[rest.index("```") :]
    if os.environ.get("REGEN") == "1":
        page.write_text(fresh)
    assert page.read_text() == fresh, "run the tests once with REGEN=1 and look at the change"


def test_every_privilege_that_is_asked_for_is_in_the_table() -> None:
    from migverify.sql.privileges import NEEDS

    known = {word for need in NEEDS for word in need.privileges}
    code = "".join(path.read_text() for path in (ROOT / "migverify").rglob("*.py"))
    asked = set(re.findall(r'allows\("([A-Z_ ]+)"', code))
    assert asked
    assert asked <= known, "a check asks for a privilege that no command is said to need"


def test_every_command_of_the_table_is_a_command() -> None:
    from migverify.sql.privileges import commands

    known = {*command_lines(), "guard monitors --sql", "tables repair --apply"}
    assert set(commands()) <= known


INSTALLED = (
    r"(?:pip3?|uv pip) install (?P<all>[^\n#&`|]*)"
    r"|(?:pipx install|uv tool install|uvx(?: --from)?|pipx run(?: --spec)?) (?P<first>'[^'\n]*'|\"[^\"\n]*\"|[^\s`]+)"
)
OF_AN_INDEX = re.compile(r"migverify(?:[-_]lab)?(?:\[[^\]]*\])?(?:[=<>~!].*)?")


def bare_installs(text: str) -> list[str]:
    """Return what a text tells to install by the name of this project alone, which an index takes for another one."""
    found = []
    for install in re.finditer(INSTALLED, text):
        words = re.findall(r"'[^']*'|\"[^\"]*\"|\S+", install["all"] or install["first"])
        for word, after in zip(words, [*words[1:], ""], strict=True):
            if OF_AN_INDEX.fullmatch(word.strip("'\",.;:)")) and after != "@":
                found.append(install[0].strip())
    return found


def test_nothing_tells_to_install_the_bare_name_from_an_index() -> None:
    wrong = ["pip install migverify", "pip install 'migverify[otel]' now", "pipx install migverify-lab",
             "uvx migverify", "env/bin/pip install 'migverify[spark]' venv-pack", "pip install -U migverify==0.1",
             "(`pip install migverify`)", "hint=\"pip install 'migverify[mcp]' installs it.\""]  # fmt: skip
    right = ["pip install './migverify-0.1.0-py3-none-any.whl[otel]'", 'pip install "migverify @ $MIGVERIFY_WHEEL"',
             "pipx run --spec ./migverify-0.1.0-py3-none-any.whl migverify --version", "pip install pyspark",
             "pip install 'migverify[spark] @ file:///path/migverify-0.1.0-py3-none-any.whl'"]  # fmt: skip
    assert [text for text in wrong if not bare_installs(text)] == []
    assert [text for text in right if bare_installs(text)] == []
    folders = ("docs", "migverify", "lab", "spark_jobs", "runbooks", "examples", "bench", "docker", ".github")
    kinds = {".md", ".py", ".yaml", ".yml", ".sh", ".toml", ".txt", ".json", ".Dockerfile"}
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in kinds]
    found = {str(path.relative_to(ROOT)): installs for path in [ROOT / "README.md", ROOT / "Makefile", *files]
             if (installs := bare_installs(path.read_text(encoding="utf-8")))}  # fmt: skip
    assert not found, "install the wheel of a release by its file: docs/install.md#extras"
