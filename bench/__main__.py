"""``python -m bench``: every question, or those named, against the bench's own lab or the servers named."""

from __future__ import annotations

import argparse

from bench import differences, expressions, run_tables, scale, sizes, startup, watch
from bench.setting import add_arguments, open_setting

QUESTIONS = ("run_tables", "differences", "expressions", "sizes", "startup", "scale", "watch")


def main() -> None:
    """Run the questions in the order of the README."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=f"of {', '.join(QUESTIONS)}; none: all")
    add_arguments(parser)
    watch.add_arguments(parser)
    arguments = parser.parse_args()
    wanted = arguments.questions or QUESTIONS
    if unknown := set(wanted) - set(QUESTIONS):
        parser.error(f"no question is called {', '.join(sorted(unknown))}; there are {', '.join(QUESTIONS)}")
    if "scale" in wanted:
        scale.main()
    if set(wanted) == {"scale"}:
        return
    setting = open_setting(arguments)
    for name, run in (
        ("run_tables", lambda: run_tables.main(setting)),
        ("differences", lambda: differences.main(setting, list(differences.USUAL), ["local"])),
        ("expressions", lambda: (expressions.main(setting), expressions.reads(setting))),
        ("sizes", lambda: sizes.main(setting)),
        ("startup", lambda: startup.main(setting)),
        ("watch", lambda: watch.main(setting, arguments.rates, arguments.load_seconds)),
    ):
        if name in wanted:
            print(f"\n== {name}")
            run()


if __name__ == "__main__":
    main()
