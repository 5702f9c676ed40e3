"""``python -m bench.faults``: run comparison tools on pairs of tables whose differences are known."""

from __future__ import annotations

import argparse
from pathlib import Path
from urllib.parse import urlsplit

from bench.faults.adapter import Endpoint
from bench.faults.adapters import KNOWN, adapters
from bench.faults.cases import FILE, load_cases
from bench.faults.page import matrix, page
from bench.faults.run import SECONDS, read_results, run

LAB = Path(".migverify-bench")


def main() -> None:
    """Run, print the matrix, and store it where a file is named."""
    parser = _parser()
    arguments = parser.parse_args()
    try:
        tools = adapters(_words(arguments.tools))
        every = load_cases(arguments.file).cases
        cases = load_cases(arguments.file).choose(_words(arguments.cases))
    except ValueError as error:
        parser.error(str(error))
    if bool(arguments.source) != bool(arguments.target):
        parser.error("name both --source and --target, or none")
    source, target = _endpoints(arguments)
    results = run(tools, cases, source, target, lambda line: print(line, flush=True), arguments.seconds)
    print("\n".join(matrix(results, cases)))
    if arguments.merge and arguments.output and arguments.output.exists():
        results = results.over(read_results(arguments.output))
    if arguments.output:
        arguments.output.write_text(results.as_json(), encoding="utf-8")
    if arguments.page:
        arguments.page.write_text(page(results, every), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description=__doc__)
    parser.add_argument("--tools", metavar="NAMES", help=f"of {', '.join(KNOWN)}, or module:Class; default: all")
    parser.add_argument("--cases", metavar="NAMES", help="names of cases or of faults; default: all")
    parser.add_argument("--file", type=Path, default=FILE, help="the cases")
    parser.add_argument("--source", metavar="URL", help="mysql://user@host:port, without password; default: a lab")
    parser.add_argument("--target", metavar="URL")
    parser.add_argument("--lab", type=Path, default=LAB, help=f"folder of the lab (default {LAB})")
    parser.add_argument("--database", default="bench_faults", help="made for each case and dropped after it")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"time of a tool for one case ({SECONDS:.0f})")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--merge", action="store_true", help="keep results of FILE for what is not run now")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page")
    return parser


def _words(text: str | None) -> list[str]:
    return [word for word in (text or "").split(",") if word]


def _endpoints(arguments: argparse.Namespace) -> tuple[Endpoint, Endpoint]:
    if arguments.source:
        return _endpoint(arguments.source, arguments.database), _endpoint(arguments.target, arguments.database)
    from migverify_lab import servers  # not needed where servers are named
    from migverify_lab.matrix.run import install_md5

    pair = servers.up(servers.lab_directory(arguments.lab), "tidb", print)
    install_md5(pair.source)  # tools that hash with MD5 expect it; MySQL 9.6 and newer have it as a component
    source, target = (
        Endpoint(server.host, server.port, server.user, arguments.database) for server in (pair.source, pair.target)
    )
    return source, target


def _endpoint(url: str, database: str) -> Endpoint:
    parts = urlsplit(url)
    if parts.password:
        raise SystemExit("use a server whose user has no password: adapters put it on command lines")
    return Endpoint(parts.hostname or "127.0.0.1", parts.port or 3306, parts.username or "root", database)


if __name__ == "__main__":
    main()
