"""`python -m fuzz` is `brokerproof`; spark-submit takes this file."""

import sys


def _start() -> None:
    if not __package__ and not sys.flags.safe_path:
        # Python was given the path of this file, so sys.path begins with fuzz/. There, fuzz/trace hides the standard
        # library's module trace.
        del sys.path[0]
    from fuzz.cli import main

    main()


if __name__ == "__main__":
    _start()
