"""`python -m fuzz` is `brokerproof`."""

from fuzz.cli import main

main()
