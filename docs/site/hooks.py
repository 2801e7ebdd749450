"""MkDocs hooks: the site has the repository's pages at their own paths, so the same links work on both.

MkDocs knows pages below one folder only. Kerf's are in several (README.md, docs, cdi, deploy/examples), and link to
manifests and folders beside them.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("cdi", "deploy", "docs")
"""The folders whose pages are in the site, beside those of the root."""
LOOKS = ("logo.svg", "site.css")
"""The files beside this one that ``mkdocs.yml`` names."""
MOVED = {
    "docs/absorbed.md": "docs/migrating.md",
    "docs/beside-other-drivers.md": "docs/comparison.md",
    "docs/reported-elsewhere.md": "docs/upstream-issues.md",
}
"""Earlier names of pages: the site leads from them to the present ones, since others may link to them."""
_REDIRECT = """<!doctype html>
<meta charset="utf-8">
<title>Moved</title>
<script>location.replace("../../{url}" + location.hash)</script>
<meta http-equiv="refresh" content="1; url=../../{url}">
<a href="../../{url}">This page has moved.</a>
"""
_LINK = re.compile(r"(?P<head>\[(?P<text>[^]]*)\]\()(?P<target>[^)\s#]+)(?P<tail>[^)\s]*\))")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Replace the files of ``docs_dir`` by the repository's pages, and by what they link to."""
    theme = [file for file in files if not str(file.abs_src_path).startswith(config.docs_dir)]
    pages = sorted({*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))})
    linked = sorted({target for page in pages for target in _linked_files(page)} - {*pages})
    linked += [Path(__file__).with_name(name) for name in LOOKS]
    return Files([*theme, *(_file(path, config) for path in (*pages, *linked))])


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Make a link to a folder one to its README.md, and plain text of one to a folder without."""

    def replace(link: re.Match[str]) -> str:
        target = (ROOT / page.file.src_uri).parent / link["target"]
        if not target.is_dir():
            return link[0]
        readme = f"{link['target'].rstrip('/')}/README.md"
        return f"{link['head']}{readme}{link['tail']}" if (target / "README.md").exists() else link["text"]

    return _LINK.sub(replace, markdown)


def on_post_build(*, config: MkDocsConfig) -> None:
    """Write a page at each earlier name that leads to the present one, with the anchor where scripts run."""
    for earlier, present in MOVED.items():
        page = Path(config.site_dir) / earlier.removesuffix(".md") / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(_REDIRECT.format(url=present.removesuffix(".md") + "/"), encoding="utf-8")


def _linked_files(page: Path) -> Iterator[Path]:
    for link in _LINK.finditer(page.read_text(encoding="utf-8")):
        target = (page.parent / link["target"]).resolve()
        if "://" not in link["target"] and target.is_file() and target.is_relative_to(ROOT):
            yield target


def _file(path: Path, config: MkDocsConfig) -> File:
    return File(path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls)
