"""The content security policy of every page: no inline script or style counts, and nothing comes from elsewhere.

The theme writes small scripts into its pages (the colours chosen before, the folder of the site). They are moved to
files of the site, so that the policy needs no exception and no hash. What it would silence on a page (an inline style,
a handler) is an error of the build (`links.silenced`), because a reader's browser would drop it without a word.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from annotator.site.atlas import relative

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; worker-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'self'"
)

_SCRIPT = re.compile(r"<script\b((?:[^>\"']|\"[^\"]*\"|'[^']*')*)>(.*?)</script>", re.DOTALL | re.IGNORECASE)
_SOURCE = re.compile(r"\bsrc\s*=", re.IGNORECASE)
_TYPE = re.compile(r"\btype\s*=\s*[\"']?([^\s\"'>]*)", re.IGNORECASE)
_HEAD = re.compile(r"<meta charset=[^>]*>", re.IGNORECASE)


def enforce(site: Path) -> None:
    """Give every page under ``site`` the policy, and move its inline scripts to files. Source pages have it already."""
    for file in sorted(site.rglob("*.html")):
        text = file.read_text(encoding="utf-8")
        if POLICY not in text:
            file.write_text(policed(text, file.relative_to(site).as_posix(), site), encoding="utf-8")


def policed(text: str, address: str, site: Path) -> str:
    """The page at ``address`` with the policy; its scripts lie under ``site`` then."""
    root = "/" if address == "404.html" else relative("index.html", address).removesuffix("index.html")

    def moved(match: re.Match[str]) -> str:
        attributes, script = match.groups()
        kind = _TYPE.search(attributes)
        if _SOURCE.search(attributes) or is_data(kind[1] if kind else ""):
            return match[0]
        name = f"assets/inline.{hashlib.sha256(script.encode()).hexdigest()[:12]}.js"
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(script, encoding="utf-8")
        return f'<script{attributes} src="{root}{name}"></script>'

    meta = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    return _HEAD.sub(lambda match: match[0] + meta, _SCRIPT.sub(moved, text), count=1)


def is_data(kind: str) -> bool:
    """Whether a script of that type is data, which no browser runs."""
    return kind.lower() in ("application/json", "application/ld+json")
