"""The site, whole: MkDocs in process for the prose, our own writer for the source pages, then every link followed.

Apart from the parts it puts together; the only module that knows MkDocs.
"""

from __future__ import annotations

import html
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from annotator.errors import SiteError
from annotator.pins import Progress
from annotator.site import links, policy, source, symbols
from annotator.site.atlas import current, page_address
from annotator.workspace import Workspace

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

EXTENSION = "annotator.site.extension"


def build(workspace: Workspace, *, strict: bool = True, full: bool = False, progress: Progress | None = None) -> Path:
    """Build the site and return its folder. ``strict``: a warning of MkDocs or a dead link is an error. ``full``: every
    file of the index has a source page, not only those that a reading or a link touches.

    It is built aside and put in place when it is whole; until then, and after an error, the site of before stays.

    Raises:
        SiteError: no configuration; MkDocs cannot build it, or warned; a link is dead.
        AnnotatorError: what a reading, a pin or the index raises while its page is rendered.
    """
    current(workspace).whole = full
    with _aside(workspace) as made:
        with _reported(workspace) as warnings:
            _mkdocs(_config(workspace, warnings, strict=strict, site_dir=str(made)))
        _search_without_server(made)
        policy.enforce(made)
        source.write(current(workspace), made, progress, before=workspace.site)
        symbols.write(current(workspace), made)
        if strict:
            _refuse(warnings, made)
        _put_in_place(made, workspace.site)
    return workspace.site


def refresh(workspace: Workspace, pages: list[str]) -> list[str]:
    """Build some pages (``walkthroughs/verl/x.md``) again, in the site as it is; MkDocs' warnings. For the preview:
    what is made of all pages together, the search in their text above all, stays as it was.

    Raises:
        SiteError, AnnotatorError: as `build`.
    """
    site = workspace.site
    together = {file: file.read_bytes() for name in _TOGETHER for file in site.glob(name)}
    for page in pages:
        os.utime(site / page_address(page), (0, 0))  # older than its text, whenever that was written
    try:
        with _reported(workspace) as warnings:
            config = _config(workspace, warnings, strict=False, site_dir=str(site))
            config.nav = _titled(config.nav, site, config.site_name)
            _mkdocs(config, dirty=True)
    finally:
        for file, data in together.items():
            file.write_bytes(data)
    policy.enforce(site)
    source.write(current(workspace), site)
    symbols.write(current(workspace), site)
    return [warning for warning in warnings if "'dirty' build" not in warning]


_TOGETHER = ("search/search_index.*", "objects.inv", "sitemap.xml*")
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)
_HEADING = re.compile(r"<h1[^>]*>(.*?)</h1>", re.DOTALL)
_TAGS = re.compile(r'<a class="headerlink".*?</a>|<[^>]*>', re.DOTALL)


def _titled(nav: Any, site: Path, site_name: str) -> Any:
    """The navigation with a title for every page: MkDocs would look for it in pages that it does not read now."""
    if isinstance(nav, list):
        return [_titled(item, site, site_name) for item in nav]
    if isinstance(nav, dict):
        return {
            title: _titled(item, site, site_name) if isinstance(item, list) else item for title, item in nav.items()
        }
    page = site / page_address(str(nav))
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    for pattern in (_TITLE, _HEADING):  # the theme gives the first page the site's name for a title
        found = pattern.search(text)
        title = html.unescape(_TAGS.sub("", found[1])) if found else site_name
        if title != site_name:
            return {title.removesuffix(f" - {site_name}"): nav}
    return nav


def zensical(workspace: Workspace, folder: Path) -> Path:
    """Build the pages of prose with Zensical, from the same ``mkdocs.yml``, and move them to ``folder``.

    Raises:
        SiteError: Zensical is not installed, or fails.
    """
    program = shutil.which("zensical", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if not program:
        raise SiteError("zensical", expected="the program", found="none", remedy="python -m pip install zensical")
    with _aside(workspace) as made:
        done = _run_zensical(program, workspace, made)
        if done.returncode or not (made / "index.html").is_file():
            raise SiteError("zensical build", expected="pages", found=_last_line(done.stdout + done.stderr))
        _put_in_place(made, folder)
    return folder


def _run_zensical(program: str, workspace: Workspace, made: Path) -> subprocess.CompletedProcess[str]:
    """Zensical takes the folder to write to from its configuration only, hence one that inherits ``mkdocs.yml``."""
    settings = workspace.root / f"mkdocs.{made.parent.name}.yml"
    folder = made.relative_to(workspace.root).as_posix()
    settings.write_text(f"INHERIT: mkdocs.yml\nsite_dir: {folder}\n", encoding="utf-8")
    try:
        command = [program, "build", "--clean", "--config-file", str(settings)]
        environment = {**os.environ, "ANNOTATOR_ROOT": str(workspace.root)}
        return subprocess.run(command, cwd=workspace.root, env=environment, capture_output=True, text=True, check=False)
    finally:
        settings.unlink()


@contextmanager
def _aside(workspace: Workspace) -> Iterator[Path]:
    """A folder of this build's own, on the same disk as the site; gone afterwards, however the build ends."""
    cache = workspace.root / ".cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="site-", dir=cache, ignore_cleanup_errors=True) as folder:
        yield Path(folder) / "site"


def _put_in_place(made: Path, site: Path) -> None:
    """Exchange the old site for the new one by two renamings; the old one goes with the folder around ``made``."""
    try:
        if site.exists():
            site.rename(made.with_name("old"))
        made.rename(site)
    except OSError as error:
        raise SiteError(str(site), expected="a folder that can be replaced", found=error.strerror or "none") from error


def _config(workspace: Workspace, told: list[str], **settings: Any) -> MkDocsConfig:
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort, ConfigurationError

    file = workspace.root / "mkdocs.yml"
    if not file.is_file():
        raise SiteError(str(file), expected="the site's configuration", found="none", remedy="build inside a checkout")
    try:
        config = load_config(str(file), **settings)
    except (Abort, ConfigurationError) as error:
        found = told[0] if told else _last_line(str(error))
        raise SiteError("mkdocs.yml", expected="a configuration that MkDocs reads", found=found) from error
    config.mdx_configs.setdefault(EXTENSION, {})["root"] = workspace
    return config


def _mkdocs(config: MkDocsConfig, *, dirty: bool = False) -> None:
    from mkdocs.commands.build import build as make
    from mkdocs.exceptions import Abort, BuildError

    config.plugins.on_startup(command="build", dirty=dirty)
    try:
        make(config, dirty=dirty)
    except Abort:
        pass  # warnings in strict mode: they were collected, and are refused later, all of them
    except BuildError as error:
        raise SiteError("mkdocs.yml", expected="pages", found=str(error)) from error
    finally:
        config.plugins.on_shutdown()


def _search_without_server(site: Path) -> None:
    """The search index as a script too: from ``file://`` the theme loads nothing else (see ``assets/offline.js``)."""
    index = site / "search" / "search_index.json"
    if index.is_file():
        index.with_suffix(".js").write_text(f"var __index = {index.read_text(encoding='utf-8')}", encoding="utf-8")


class _Collected(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(" ".join(record.getMessage().split()))


@contextmanager
def _reported(workspace: Workspace) -> Iterator[list[str]]:
    """Collect what MkDocs warns of instead of printing it; work in the workspace, which plugins' paths start from."""
    handler, logger, before = _Collected(), logging.getLogger("mkdocs"), Path.cwd()
    spreads, level = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.WARNING)
    os.environ.setdefault("NO_MKDOCS_2_WARNING", "true")
    os.chdir(workspace.root)
    try:
        yield handler.messages
    finally:
        os.chdir(before)
        logger.removeHandler(handler)
        logger.propagate = spreads
        logger.setLevel(level)


def _refuse(warnings: list[str], site: Path) -> None:
    found = [
        *warnings,
        *(f"{p.place}: {p.message}" for p in links.problems(site)),
    ]
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise SiteError("the site", expected="no warning and no dead link", found=found[0] + more)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "nothing")
