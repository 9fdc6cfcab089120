"""The parts of the site that do not lie in docs/ (a hook of MkDocs, named in mkdocs.yml).

Pages are added for the Markdown files at the top of the repository and for the public headers. Links to files
of the repository that have no page become plain text; one to a file that does not exist is a warning, and so
an error of the build.
"""

from __future__ import annotations

import logging
import posixpath
import re
from pathlib import Path

from docs_headers import c_page, cpp_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
TOP_PAGES = {
    "index.md": "README.md",
    "hacking.md": "HACKING.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}
# The pages that links to these files lead to.
PAGES = {(ROOT / source): page for page, source in TOP_PAGES.items()} | {
    ROOT / "include/kronsparse": "api/cpp.md",
    ROOT / "include/kronsparse/kronsparse.h": "api/c.md",
    DOCS / "report.md": "report.html",
}
_LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")
_FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_log = logging.getLogger("mkdocs.hooks.docs_site")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages whose text lies outside of docs/."""
    headers = sorted((ROOT / "include/kronsparse").glob("*.hpp"))
    texts = {page: (ROOT / source).read_text(encoding="utf-8") for page, source in TOP_PAGES.items()}
    texts["api/cpp.md"] = cpp_page([header for header in headers if header.name != "kronsparse.hpp"])
    texts["api/c.md"] = c_page(ROOT / "include/kronsparse/kronsparse.h")
    for page, text in texts.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links between files of the repository into links between pages."""
    uri = page.file.src_uri
    source = ROOT / TOP_PAGES[uri] if uri in TOP_PAGES else DOCS / uri
    parts = _FENCED.split(markdown)
    parts[::2] = [
        _LINK.sub(lambda found: _link(found[1], found[2], source, uri), part) for part in parts[::2]
    ]
    return "".join(parts)


def _link(text: str, target: str, source: Path, uri: str) -> str:
    path, hash_, anchor = target.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return f"{text}({target})"
    file = (source.parent / path).resolve()
    if not file.exists() and not uri.startswith("api/"):
        _log.warning(f"{source.relative_to(ROOT)}: the link {target!r} leads to no file")
    page = PAGES.get(file) or (file.relative_to(DOCS).as_posix() if file.is_relative_to(DOCS) else None)
    if page is None:  # a file without a page
        return text.strip("![]")
    return f"{text}({posixpath.relpath(page, posixpath.dirname(uri) or '.')}{hash_}{anchor})"
