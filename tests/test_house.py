"""The rules of the house that no other tool checks: documents that must agree, and what a package exports."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "rackyard"
FENCE = re.compile(r"^(```|~~~)[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#{1,6}) +\S", re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
INITS = sorted(PACKAGE.rglob("__init__.py"))


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def code_blocks(text: str) -> list[str]:
    return [match[0] for match in FENCE.finditer(text)]


def headings(text: str) -> list[int]:
    return [len(match[1]) for match in HEADING.finditer(FENCE.sub("", text))]


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#{1,6} +(.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_both_readmes_have_the_same_headings_and_code_blocks() -> None:
    english, chinese = read(ROOT / "README.md"), read(ROOT / "README_zh.md")
    assert headings(english) == headings(chinese)
    assert code_blocks(english) == code_blocks(chinese)


def test_pages_in_two_languages_have_the_same_headings_and_code_blocks() -> None:
    for chinese in (ROOT / "docs").rglob("*.zh.md"):
        english = chinese.with_name(chinese.name.replace(".zh.md", ".md"))
        assert headings(read(english)) == headings(read(chinese)), named(chinese)
        assert code_blocks(read(english)) == code_blocks(read(chinese)), named(chinese)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_inside_the_repository_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", read(page))
    for target in (one or other for one, other in LINK.findall(text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), f"{named(page)} links to {target}"
        if anchor and other.suffix == ".md":
            assert anchor in anchors(read(other)), f"{named(page)} links to {target}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_pages_load_nothing_from_elsewhere(page: Path) -> None:
    fetched = re.findall(r"!\[[^\]]*\]\((https?:[^)]+)\)|src=\"(https?:[^\"]+)\"", read(page))
    assert fetched == []


@pytest.mark.parametrize("init", INITS, ids=named)
def test_an_init_holds_exports_and_nothing_else(init: Path) -> None:
    body = ast.parse(read(init)).body
    assert [node.name for node in body if isinstance(node, ast.ClassDef)] == []
    # __getattr__ loads exports on first use.
    functions = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert [name for name in functions if name not in ("__getattr__", "__dir__")] == []

    exported, bound = exports(body), public_names(body)
    assert len(exported) == len(set(exported)), "a name is exported twice"
    assert set(exported) - bound == set(), "exported but not there"
    assert bound - set(exported) - {"__version__"} == set(), "there but not exported"


def exports(body: list[ast.stmt]) -> list[str]:
    """What a module's __all__ lists."""
    for node in body:
        if isinstance(node, ast.Assign) and assigned(node) == {"__all__"}:
            return list(ast.literal_eval(node.value))
    return []


def public_names(body: list[ast.stmt]) -> set[str]:
    """The names a module assigns or takes from rackyard, those under `if TYPE_CHECKING` included."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.If):
            names |= public_names(node.body)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rackyard"):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            names |= {name for name in assigned(node) if not name.startswith("_")} | (assigned(node) & {"__version__"})
    return names


def assigned(node: ast.Assign) -> set[str]:
    return {target.id for target in node.targets if isinstance(target, ast.Name)}


def test_files_stay_short() -> None:
    lengths = {named(path): read(path).count("\n") for path in PACKAGE.rglob("*.py")}
    assert {name: lines for name, lines in lengths.items() if lines > 500} == {}


def test_what_was_sealed_or_given_is_not_copied_in() -> None:
    """No file of the package or the tests reads the sealed acceptance set."""
    here = Path(__file__).name
    sources = [*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    assert [named(path) for path in sources if path.name != here and "shared/sealed" in read(path)] == []


def test_the_job_file_in_the_readme_is_the_one_in_the_reference() -> None:
    from rackyard.jobs.specdoc import EXAMPLE

    assert f"```yaml\n{EXAMPLE}```" in read(ROOT / "README.md")
