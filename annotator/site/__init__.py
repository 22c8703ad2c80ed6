"""Where it is read: the pages of the readings, the source pages, and the check of every link.

The last link of the chain. `extension` renders steps inside MkDocs or Zensical, `source` writes the source pages,
`atlas` knows every address, `build` puts it together, `serving` shows it while pages are written.
"""

from annotator.site.build import build, zensical
from annotator.site.links import dead_links, outside_resources
from annotator.site.serving import serve

__all__ = ["build", "dead_links", "outside_resources", "serve", "zensical"]
