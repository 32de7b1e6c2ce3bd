"""The page of a comparison, without a browser."""

import re
from html.parser import HTMLParser

from forager.tools.experiments.compare.document import document
from forager.tools.experiments.compare.page import render
from forager.tools.experiments.compare.schema import Document
from made_up import comparison, seeds


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]


def test_it_is_one_file_that_needs_no_other() -> None:
    runs = {f"s{i}": seeds(0.05 * i, cost=10.0**i) for i in range(5)} | {"failed": []}
    found = document(comparison(runs, s0=0, failed=0), "forager compare")
    text = render(Document.model_validate_json(found.json_text()))
    page = Page(text)
    assert len(text) < 2_000_000
    assert page.tags.count("figure") == page.tags.count("figcaption") == 4
    assert page.tags.count("tr") == 1 + len(runs)
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert "http" not in re.sub(r"https?://www\.w3\.org/\S+", "", text).replace("http-equiv", "")
    assert "prefers-color-scheme: dark" in text
    assert "mathdefault" not in text  # matplotlib's way to write powers


def test_names_from_strangers_stay_text() -> None:
    name = "</script><img src=x onerror=alert(1)>"
    found = document(comparison({"fedavg": seeds(0.5), name: seeds(0.6)[:1]}), name)
    page = Page(render(found))
    assert "img" not in page.tags
    assert page.tags.count("script") == 2


def test_nothing_but_failures_still_makes_a_page() -> None:
    text = render(document(comparison({"fedavg": []}, fedavg=0)))
    assert "No strategy can be recommended" in text
