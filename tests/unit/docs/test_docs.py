"""The documentation: it builds without a warning, its links lead somewhere, its commands exist."""

import importlib.util
import logging
import re
import shlex
from pathlib import Path

import pytest
from forager.core.config import default_config, read_config
from forager.core.config.overrides import parse_overrides
from forager.core.config.reading import what_now
from forager.tools.cli.app import app
from forager.tools.config_help import sections
from forager.tools.demos import DEMOS
from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
METHODS = ("cosage", "gcfl", "ode", "auxo", "ios")
FILES = sorted(
    [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "docker").rglob("*.md")],
)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def commands(text: str) -> list[str]:
    """Return the lines of a page that are typed into a shell, continued ones joined."""
    blocks = [body for language, body in BLOCK.findall(text) if not language]
    return [line for body in blocks for line in body.replace("\\\n", " ").splitlines()]


def inline(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    complaints: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: complaints.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("mkdocs").addHandler(handler)
    try:
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder)))
    finally:
        logging.getLogger("mkdocs").removeHandler(handler)
    assert complaints == []
    return folder


def test_it_builds_without_a_warning_and_needs_no_network(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert {"index.html", "run.html", "choosing.html", "cosage.html"} <= {p.name for p in pages}
    outside = re.compile(r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]*)"')
    for page in pages:
        assert outside.findall(page.read_text()) == []


def test_the_reference_shows_examples_and_nothing_private(site: Path) -> None:
    pages = [page.read_text() for page in (site / "api").glob("*.html")]
    names = [name for page in pages for name in re.findall(r'id="(forager\.[\w.]+)"', page)]
    assert {"forager.strategy", "forager.CosAge", "forager.Problem.loss"} <= set(names)
    assert [name for name in names if "._" in name] == []
    assert sum("&gt;&gt;&gt; " in page for page in pages) == len(pages)


def test_marks_are_filled_in(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not re.search(r"(knobs|results|include): \w+ --", page.read_text()), page
    for method in METHODS:
        text = (site / "methods" / f"{method}.html").read_text()
        measured = (DOCS / "results" / f"{method}.md").exists()
        assert (f"../results/{method}.html" in text) == measured
        assert "<th>default</th>" in text
    assert "make test" in (site / "extending.html").read_text()
    assert "SuperLink" in (site / "deploying.html").read_text()


@pytest.mark.parametrize("method", METHODS)
def test_a_method_s_page_answers_all_questions(method: str) -> None:
    text = (DOCS / "methods" / f"{method}.md").read_text()
    titles = ["The idea", "See it", "Settings", "How we read the paper"]
    titles += ["What the paper claims", "What we measured"]
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == titles
    idea = text.partition("## The idea")[2].partition("##")[0]
    assert re.findall(r"^(\d)\. ", idea, re.MULTILINE) == list("12345")
    assert f"../pictures/{method}.svg" in idea
    see = text.partition("## See it")[2].partition("##")[0]
    assert f"\nforager demo {method}\n" in see
    report = "".join(path.read_text() for path in (ROOT / "tools" / "report").glob("*.py"))
    shown = re.findall(r'"([^"]+)"', see)
    assert shown
    assert [title for title in shown if f'"{" ".join(title.split())}' not in report] == []
    assert read_config({"strategy": method}).strategy == method


@pytest.mark.parametrize("method", METHODS)
def test_every_step_of_a_paper_is_in_the_function_that_is_named(method: str) -> None:
    text = (DOCS / "methods" / f"{method}.md").read_text()
    table = text.partition("### The algorithm, line by line")[2].partition("\n##")[0]
    steps = re.findall(r"^\|[^|]+\| `([\w.]+)` in `([\w/.]+)` \|$", table, re.MULTILINE)
    assert len(steps) == len(re.findall(r"^\|", table, re.MULTILINE)) - 2 >= 5
    for function, path in steps:
        code = (ROOT / path).read_text()
        for part in function.split("."):
            assert re.search(rf"^ *(def|class) {part}\b|^{part} = ", code, re.MULTILINE), function


@pytest.mark.parametrize("method", METHODS)
def test_every_value_of_a_paper_is_the_default_of_its_preset(method: str) -> None:
    text = (DOCS / "methods" / f"{method}.md").read_text()
    table = text.partition("### Values")[2].partition("\n## ")[0]
    row = r"^\| ((?:\\\||[^|])+) \| ([^|]+) \| `([^`]+)`(?: in `([^`]+)`)? \|$"
    rows = re.findall(row, table, re.MULTILINE)
    assert len(rows) == len(re.findall(r"^\|", table, re.MULTILINE)) - 2 >= 6
    config = read_config({"strategy": method}).flat()
    for value, _, here, path in rows:
        if path:
            assert re.search(rf"\b{re.escape(here)}(?!\w)", (ROOT / path).read_text()), value
        else:
            ((key, given),) = parse_overrides([here]).items()
            assert (config[key], type(config[key])) == (given, type(given)), value


@pytest.mark.parametrize("path", FILES, ids=name)
def test_links_lead_to_files(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", BLOCK.sub("", path.read_text())):
        assert (path.parent / target).exists(), f"{name(path)}: {target}"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_commands_exist(path: Path) -> None:
    text = path.read_text()
    targets = "".join(p.read_text() for p in [ROOT / "Makefile", *ROOT.glob("docker/*.mk")])
    known = set(re.findall(r"^([a-z-]+):", targets, re.MULTILINE))
    for line in [*commands(text), *inline(text)]:
        for target in re.findall(r"(?:^|&& )make ([a-z][a-z-]*)", line):
            assert target in known, f"{name(path)}: make {target}"
        for module in re.findall(r"python -m ([a-z_]+(?:\.[a-z_]+)*)", line):
            assert importlib.util.find_spec(module), f"{name(path)}: python -m {module}"
        for command in re.findall(r"^forager ([a-z][a-z-]*)", line):
            assert command in forager_commands(), f"{name(path)}: forager {command}"
        for method in re.findall(r"^forager demo ([a-z]+)", line):
            assert method in DEMOS, f"{name(path)}: forager demo {method}"


def forager_commands() -> set[str]:
    return {
        each.name or each.callback.__name__ for each in app.registered_commands if each.callback
    }


@pytest.mark.parametrize("path", FILES, ids=name)
def test_settings_are_allowed(path: Path) -> None:
    # A method that the page shows how to write is not there yet; test_contributing runs these.
    shown = re.findall(r'^ +name="([a-z-]+)",$', path.read_text(), re.MULTILINE)
    for line in commands(path.read_text()):
        if any(f"='{name}'" in line for name in shown):
            continue
        if re.match(r"(make|flwr run|forager (run|compare|resume)) ", line):
            for word in shlex.split(line, comments=True):
                check_settings(word.removeprefix("CONFIG="))
    for code in inline(path.read_text()):
        check_settings(code)
        section, dot, key = code.partition(".")
        if dot and section in sections() and re.fullmatch(r"(?!csv$)[a-z0-9-]+", key):
            told = path.name == "CHANGELOG.md" and what_now(code)  # it names keys that are gone
            assert code in default_config() or told, f"{name(path)}: {code}"


def check_settings(text: str) -> None:
    """Refuse keys and values that a run would refuse; other texts are passed over."""
    pair = r"[a-z][a-z.-]*=('[^'<]*'|[0-9.]+|true|false)"
    if re.fullmatch(rf"{pair}( {pair})*", text) and "num-supernodes" not in text:
        read_config({**default_config(), **parse_overrides([text])})
