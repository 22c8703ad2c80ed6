"""``python -m annotator`` is the command line too."""

from annotator.cli import main

main()
