"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_origin

import typer

from orienteer.errors import UsageError

if TYPE_CHECKING:
    from orienteer.agents.runtime.method import Settings

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
HomeOption = Annotated[
    str | None,
    typer.Option(
        "--home", metavar="DIR", help="Orienteer's folder (default: $ORIENTEER_HOME or the user's data folder)."
    ),
]
Database = Annotated[
    str | None, typer.Option("--db", metavar="PATH|URL", help="Run database (default: runs.sqlite in the home folder).")
]
RunId = Annotated[str, typer.Argument(metavar="ID", help="A run's id, its beginning, or last.")]
Evals = Annotated[int | None, typer.Option("--evals", "--budget-evals", min=0, metavar="N", help="Most evaluations.")]
Tokens = Annotated[
    int | None, typer.Option("--tokens", "--budget-tokens", min=0, metavar="N", help="Most tokens of model calls.")
]
Cost = Annotated[
    float | None,
    typer.Option("--cost", "--budget-cost", min=0, metavar="X", help="Most money, in the price table's currency."),
]
Time = Annotated[str | None, typer.Option("--time", metavar="30m", help="Most time: seconds, or 90s, 30m, 2h.")]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="KIND/NAME", help="openai/NAME, local/smollm2, scripted/FILE or offline."),
]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", min=1, max=256, metavar="N", help="Proposals and evaluations at one time (default: cores)."
    ),
]
Sandbox = Annotated[str, typer.Option("--sandbox", metavar="KIND", help="auto, bwrap, docker or process.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit status 1 unless every task is proven.")]
Unsafe = Annotated[bool, typer.Option("--allow-unsafe", help="Allow the process sandbox, which isolates nothing.")]


def seconds(text: str | None) -> float | None:
    """Return a duration in seconds.

    Raises:
        UsageError: it is none.
    """
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", text)
    if match is None:
        raise UsageError(f"--time {text!r} is no duration", "write seconds, or 90s, 30m, 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]


def as_settings(words: Sequence[str], kind: type[Settings]) -> dict[str, Any]:
    """Return the values that ``--NAME VALUE`` and ``--NAME=VALUE`` on the command line give to a method's settings.

    A switch (a setting of type bool) needs no value. Values stay text until they are checked; those of a setting that
    is a list are gathered.

    Raises:
        UsageError: the method has no such setting, or a value is missing or too much.
    """
    import difflib

    known = {name.replace("_", "-"): name for name in kind.model_fields}
    found: dict[str, Any] = {}
    todo = list(words)
    while todo:
        word = todo.pop(0)
        option, sign, value = word.removeprefix("--").partition("=")
        if not word.startswith("-"):
            raise UsageError(f"got unexpected extra argument ({word[:60]})", "see `agent run --help`")
        name = known.get(option.replace("_", "-")) if word.startswith("--") else None
        if name is None:
            near = difflib.get_close_matches(option, known, n=1)
            hint = f"did you mean --{near[0]}?" if near else "see `agent run --help` and `agent methods`"
            raise UsageError(f"no such option: {word.partition('=')[0][:60]}", hint)
        annotation = kind.model_fields[name].annotation
        if not sign and annotation is bool:
            value = "true"
        elif not sign:
            if not todo:
                raise UsageError(f"{word} needs a value", f"write {word} VALUE")
            value = todo.pop(0)
        if get_origin(annotation) is list:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise UsageError(f"{word} is given twice", "remove one of the two")
        else:
            found[name] = value
    return found


def group(text: str) -> typer.Typer:
    """Return a new group of commands with our ways: plain help, errors left to the front."""
    return typer.Typer(
        help=text,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
