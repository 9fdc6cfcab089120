"""The command: python -m kronsparse doctor."""

from __future__ import annotations

import argparse

from kronsparse.doctor import examine, report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kronsparse")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="what can be used here, what is missing and how to get it")
    parser.parse_args()
    findings = examine()
    print(report(findings))
    # Without a GPU or torch the rest works; without the native module nothing does.
    return 0 if all(finding.usable for finding in findings if finding.what == "native module") else 1


if __name__ == "__main__":
    raise SystemExit(main())
