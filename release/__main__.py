"""``python -m release``: build what is committed into ``dist/``, then check it; exit 1 at the first failure."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from release import build, check, tutorial
from release.machine import Failed, Machine

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Build and check, one line for each thing that was shown to hold."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="what is in it is replaced")
    parser.add_argument("--only-build", action="store_true", help="without the checks")
    parser.add_argument("--without-tutorial", action="store_true", help="no servers are started")
    given = parser.parse_args()
    out = given.out.absolute()
    with tempfile.TemporaryDirectory(prefix="mvrel-") as folder:  # short: sockets of servers are in it
        try:
            build.build(ROOT, out, Path(folder), say)
            if not given.only_build:
                machine = Machine(Path(folder) / "machine", out, ROOT)
                check.check(machine, say)
                if not given.without_tutorial:
                    tutorial.follow(machine, say)
        except Failed as failure:
            print(f"release: {failure}", file=sys.stderr)
            return 1
    print(f"{out}: ready to publish")
    return 0


def say(line: str) -> None:
    """Print a line at once, also into a pipe."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
