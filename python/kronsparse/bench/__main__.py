"""The command: kronsparse-bench and one of `COMMANDS`."""

from __future__ import annotations

import argparse
import importlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from kronsparse.bench.errors import RefusalError

# Each is a module with `add_options(parser)` and `main(options) -> exit code`, loaded when it is asked for:
# only those that time or compare need PyTorch, which must not be loaded before the process is prepared.
COMMANDS = {
    "run": ("run", "time a suite of problems, ours beside PyTorch"),
    "chains": ("chains", "time whole chains beside their factors one by one and the dense layer"),
    "layers": ("layers", "time KSLinear: steps of training, and the host's part of a call"),
    "weights": ("weights", "time unfrozen layers beside frozen ones; count packed bytes"),
    "models": ("models", "time models and their parts beside their dense twins"),
    "peft": ("peft", "time training steps with PEFT's BOFT, the same as chains, and LoRA"),
    "accuracy": ("accuracy", "measure errors of long sums against float64, beside PyTorch's"),
    "regret": ("regret", "time every candidate, and how far the choice is from the best"),
    "report": ("report", "make a page with tables and plots from results files"),
    "compare": ("compare", "list what got faster or slower between two results files"),
    "advise": ("advise", "list chains for a layer, fastest first"),
    "numbers": ("numbers", "fill in the numbers of Markdown files from results files, or check them"),
}


def lacking(error: ModuleNotFoundError) -> str:
    """The advice about a package that is not installed.

    >>> lacking(ModuleNotFoundError("No module named 'bokeh'", name="bokeh"))
    "No module named 'bokeh': pip install bokeh"
    """
    remedy = f"pip install {error.name}" if error.name else "install what it needs"
    if error.name == "torch":
        remedy += ", then install kronsparse again, so that torch's operators are built"
    return f"{error}: {remedy}"


# Those that go on in a file where they were stopped.
CONTINUED = ("run", "regret", "models", "chains")


def stopped(command: str, given: Sequence[str]) -> str:
    """The words for who stopped a command: how to go on, or where the rows are."""
    from kronsparse.bench.results.rows import Results

    path = Results.last_written
    if path is None:
        return "stopped; nothing was written"
    if command not in CONTINUED:
        return f"stopped; rows so far are in {path}"
    words = (
        list(given) if any(word.startswith("--output") for word in given) else [*given, "--output", str(path)]
    )
    return f"stopped; this goes on from here: {_called()} {shlex.join(words)}"


def _called() -> str:
    """The command as it was called: from a source tree it is no program of its own."""
    is_module = Path(sys.argv[0]).parts[-2:] == ("bench", "__main__.py")
    return f"{shlex.quote(sys.executable)} -m kronsparse.bench" if is_module else "kronsparse-bench"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a subcommand and returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(given)
    except KeyboardInterrupt:  # also while torch is being loaded
        print(f"\n{stopped(given[0] if given else '', given)}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # of who reads what is printed, such as head
        sys.stdout = None
        return 1


def _run(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="kronsparse-bench", description="The benchmark of kronsparse.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (module_name, summary) in COMMANDS.items():
        if given[:1] == [name]:
            try:
                module = importlib.import_module(f"kronsparse.bench.{module_name}")
            except ModuleNotFoundError as error:
                print(f"kronsparse-bench {name}: {lacking(error)}", file=sys.stderr)
                return 1
            command = commands.add_parser(
                name,
                help=summary,
                description=module.__doc__,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            module.add_options(command)
            command.set_defaults(main=module.main)
        else:
            commands.add_parser(name, help=summary)
    options = parser.parse_args(given)
    try:
        return int(options.main(options))
    except ModuleNotFoundError as error:
        told = lacking(error) if error.name else error  # without a name it says what to do itself
        print(f"kronsparse-bench {options.command}: {told}", file=sys.stderr)
        return 1
    except (OSError, ValueError, RefusalError) as error:
        print(f"kronsparse-bench {options.command}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
