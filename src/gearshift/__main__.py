"""`python -m gearshift`."""

from gearshift.cli import main

main()
