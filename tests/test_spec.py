"""The specification as a site: a page for each component, whose links lead somewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fuzz.defects.table import defects_of
from fuzz.report.campaign import prose
from fuzz.spec import pages, write
from fuzz.subject import find_subject, subject_names
from model.machine import BadValue


class Anchors(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids, self.links = set[str](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value is not None:
                self.ids.add(value)
            if name == "href" and value is not None:
                self.links.append(value)


def broken_links(made: dict[str, str], also: Path | None = None) -> list[str]:
    """Returns the broken links of some pages. `also` is a folder with further files that the pages may link to."""
    found = {name: Anchors(text) for name, text in made.items()}
    broken = []
    for name, page in found.items():
        for link in page.links:
            target, _, anchor = link.partition("#")
            if link.startswith("https://github.com/") or (also is None and target.startswith("modules/")):
                continue
            known = found.get(target or name)
            if known is None:
                if also is None or not (also / target).is_file():
                    broken.append(f"{name}: {link}")
            elif anchor and anchor not in known.ids:
                broken.append(f"{name}: {link}")
    return broken


def test_a_page_has_every_action_property_setting_and_defect_of_its_component() -> None:
    names = ["canary", "txn_rollout"]
    made = pages(names)
    assert set(made) == {"index.html", "settings.html", "canary.html", "txn_rollout.html"}
    for name in names:
        subject, text = find_subject(name), made[f"{name}.html"]
        anchors = Anchors(text).ids
        assert {f"action-{action}" for action in subject.machine.actions} <= anchors
        assert {f"property-{p.name}" for p in subject.properties} <= anchors
        assert all(f"<code>{setting}</code>" in text for setting in subject.machine.fields)
        assert text.count("<summary>source</summary>") == len(subject.machine.actions)
        assert all(prose(defect.symptom) in text for defect in defects_of(name))
    assert re.search(r'violates <a href="#property-\w+">', made["txn_rollout.html"])
    assert broken_links(made) == []


def test_a_broken_link_is_found() -> None:
    made = pages(["canary"])
    made["index.html"] += '<a href="nowhere.html"></a><a href="canary.html#action-none"></a>'
    assert broken_links(made) == ["index.html: nowhere.html", "index.html: canary.html#action-none"]


def test_prose_is_escaped_and_linked() -> None:
    said = prose("`a < b` since apache/pulsar#123 & later")
    assert said == (
        '<code>a &lt; b</code> since <a href="https://github.com/apache/pulsar/issues/123">apache/pulsar#123</a> &amp; later'
    )


@pytest.mark.nightly
def test_the_whole_site_has_no_broken_link(tmp_path: Path) -> None:
    first = write(tmp_path / "spec")
    made = {path.name: path.read_text() for path in first.parent.glob("*.html")}
    assert set(made) == {"index.html", "settings.html", *(f"{name}.html" for name in subject_names())}
    assert broken_links(made, first.parent) == []
    assert (first.parent / "modules" / "model" / "range_cache.html").is_file()


def test_a_folder_with_other_files_is_kept(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(BadValue, match="name a new or empty folder"):
        write(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"
