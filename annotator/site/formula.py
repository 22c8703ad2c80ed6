"""LaTeX to MathML when the site is built: the browser sets it, no script and no font is fetched.

Apart from the pages, so that they need not know who turns it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from annotator.errors import SiteError

_LEFT = re.compile(r"\\|(?<!&)&(?![#\w])")
"""What is no MathML: a command that the library did not know, an alignment mark outside of a table."""


@lru_cache(maxsize=512)
def mathml(latex: str, *, block: bool = False) -> str:
    """One formula as a ``<math>`` element, ``block`` on a line of its own.

    Raises:
        SiteError: the formula holds something that is not understood.
    """
    from latex2mathml.converter import convert

    try:
        made: str = convert(latex, display="block" if block else "inline")
    except Exception as error:
        raise SiteError(latex, expected="LaTeX", found=type(error).__name__) from error
    if _LEFT.search(made):
        raise SiteError(latex, expected="LaTeX that becomes MathML", found="a command that does not")
    return made
