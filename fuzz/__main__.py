"""`python -m fuzz` is `brokerproof`; spark-submit takes this file."""

import sys


def _start() -> None:
    if not __package__ and not sys.flags.safe_path:
        # Run as a file: the file's folder comes first on the path, where fuzz/trace hides the standard library's trace.
        del sys.path[0]
    from fuzz.cli import main

    main()


if __name__ == "__main__":
    _start()
