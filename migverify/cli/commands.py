"""How commands are declared: their examples, their other forms, and which options ``--help`` shows.

A *form* is a second way to use a command, chosen by an option of its own: ``workload capture --poll`` reads the
server where ``workload capture`` reads files. A form has its own options and its own ``--help``, so that a command
that does several related things still fits a screen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
import typer.core
import typer.main

from migverify.cli.console import GIVEN, given_options

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter, Parameter

EVERYTHING = "migverify.everything"
"""Mark of a help page that shows the rarely used options too."""


@dataclass(frozen=True, slots=True)
class Form:
    """A second way to use a command.

    Parameters
    ----------
    flags
        Options that choose it; any one of them does.
    function
        What runs; its docstring and options are the form's help.
    summary
        Its line in the help of the command.
    is_option
        The flags are options of the function too; otherwise they only choose the form.
    advanced
        Its rarely used options, which ``--help-all`` shows.
    """

    flags: tuple[str, ...]
    function: Callable[..., Any]
    epilog: str
    summary: str
    is_option: bool = False
    advanced: Collection[str] = ()

    def command(self) -> Command:
        """Return the form as a command of its own."""
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(cls=_kind((), self.advanced), epilog=self.epilog)(self.function)
        return typer.main.get_command(app)


class HelpfulCommand(typer.core.TyperCommand):
    """A command whose ``--help`` leaves out the rarely used options and names its other forms."""

    forms: ClassVar[tuple[Form, ...]] = ()
    advanced: ClassVar[frozenset[str]] = frozenset()

    def make_context(
        self, info_name: str | None, args: list[str], parent: Context | None = None, **extra: Any
    ) -> Context:
        """Read the arguments: by the form that they choose, else as the command itself."""
        given = args[: args.index("--")] if "--" in args else args
        names = {word.partition("=")[0] for word in given}
        form = next((one for one in self.forms if names & set(one.flags)), None)
        if form is None:
            return super().make_context(info_name, args, parent, **extra)
        rest, name = args, info_name
        if not form.is_option:
            rest, name = [word for word in args if word not in form.flags], f"{info_name} {form.flags[0]}"
        return form.command().make_context(name, rest, parent, **extra)

    def invoke(self, ctx: Context) -> Any:
        """Run the command; what it was given is known to the next steps that it prints."""
        token = GIVEN.set(given_options(ctx.params))
        try:
            return super().invoke(ctx)
        finally:
            GIVEN.reset(token)

    def get_params(self, ctx: Context) -> list[Parameter]:
        """Return the options, and ``--help-all`` where ``--help`` leaves some out."""
        params = super().get_params(ctx)
        return [*params, _help_all()] if self.advanced else params

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write arguments, options and forms."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], "Advanced options": []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is None:
                continue
            if param.param_type_name == "argument":
                sections["Arguments"].append(record)
            elif self.advanced.isdisjoint(param.opts):
                sections["Options"].append(record)
            elif ctx.meta.get(EVERYTHING):
                sections["Advanced options"].append(record)
        if self.forms:
            sections["Other forms, each with its own --help"] = [
                (" | ".join(form.flags), form.summary) for form in self.forms
            ]
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


@cache
def _help_all() -> Parameter:
    """Return the option ``--help-all``, made by Typer itself as every other one is."""

    def options(
        everything: Annotated[
            bool,
            typer.Option(
                "--help-all", is_eager=True, expose_value=False, callback=_show_everything,
                help="Show the rarely used options too, and exit.",
            ),
        ] = False,
    ) -> None:  # fmt: skip
        del everything

    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(options)
    return next(one for one in typer.main.get_command(app).params if "--help-all" in one.opts)


def _show_everything(ctx: typer.Context, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        ctx.meta[EVERYTHING] = True
        typer.echo(ctx.get_help())
        raise typer.Exit


def add(
    app: typer.Typer, name: str, function: Callable[..., Any], epilog: str, forms: Sequence[Form] = (),
    advanced: Collection[str] = (),
) -> None:  # fmt: skip
    """Add a command to a group; ``advanced`` are its rarely used options, which ``--help-all`` shows."""
    app.command(name, cls=_kind(forms, advanced), epilog=epilog)(function)


def _kind(forms: Sequence[Form], advanced: Collection[str]) -> type[HelpfulCommand]:
    return type("DeclaredCommand", (HelpfulCommand,), {"forms": tuple(forms), "advanced": frozenset(advanced)})
