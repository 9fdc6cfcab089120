"""The command: python -m kronsparse doctor, convert."""

from __future__ import annotations

import argparse
import sys

from kronsparse import convert_command
from kronsparse.doctor import examine, report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kronsparse")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="what can be used here, what is missing and how to get it")
    convert = commands.add_parser(
        "convert",
        help="make dense matrices of a safetensors file factors of chains",
        description=convert_command.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    convert_command.add_options(convert)
    options = parser.parse_args()
    if options.command == "convert":
        try:
            return convert_command.main(options)
        except (OSError, ValueError, RuntimeError, ImportError) as error:
            print(f"kronsparse convert: {error}", file=sys.stderr)
            return 1
    findings = examine()
    print(report(findings))
    # Without a GPU or torch the rest works. What is there and cannot be used is a fault.
    return int(any(finding.is_broken for finding in findings))


if __name__ == "__main__":
    raise SystemExit(main())
