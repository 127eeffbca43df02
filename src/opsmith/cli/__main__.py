"""`python -m opsmith.cli`: the command line where its script is not on PATH, as in a source tree."""

from . import main

main()
