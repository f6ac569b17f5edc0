"""The questions of `jackfield channel setup`, at a terminal, and the secrets that it makes itself."""

from __future__ import annotations

import click

from jackfield.cli import printable
from jackfield.cli.channel_form import Question, made_secret, needs, questions, secret_name
from jackfield.cli.channel_plan import Plan, name_secret
from jackfield.cli.state import current

__all__ = ["ask", "make_secrets"]


def ask(plan: Plan, *, everything: bool) -> None:
    """Ask for what is needed and not there yet; a change asks again, with what holds as the default."""
    for question in questions(plan.kind, plan.manifest, plan.merged):
        if question.secret:
            _ask_secret(plan, question)
        elif everything or (question.required and question.key not in plan.merged):
            _ask_setting(plan, question)


def _ask_secret(plan: Plan, question: Question) -> None:
    from jackfield.host.secrets.reading import secret_source

    name = secret_name(question, plan.instance, plan.type, plan.merged)
    if name in plan.secrets:
        return
    there = secret_source(plan.home, name)
    _say_help(question)
    needed = question.required or needs(plan.kind, plan.merged, question.key)
    absent = "Enter: make one" if question.generate is not None else ""
    hint = f"Enter: keep the one in the {there}" if there else absent if needed else "Enter: none"
    while True:
        value = click.prompt(
            f"{question.key}, the secret itself{f' ({hint})' if hint else ''}",
            default="",
            show_default=False,
            hide_input=True,
            err=True,
        ).strip()
        if value:
            name_secret(plan, question, value)
        elif there and question.key not in plan.merged and question.default != name:
            plan.values[question.key] = name
        elif not there and needed and question.generate is None:
            click.echo("it is needed", err=True)
            continue
        return


def make_secrets(plan: Plan) -> None:
    """Make those that are needed, were not given, and are the operator's to choose."""
    from jackfield.host.secrets.reading import secret_source

    for question in questions(plan.kind, plan.manifest, plan.merged):
        if not question.secret or question.generate is None or not needs(plan.kind, plan.merged, question.key):
            continue
        name = secret_name(question, plan.instance, plan.type, plan.merged)
        if secret_source(plan.home, name) is not None:
            plan.values[question.key] = name
            continue
        name_secret(plan, question, made_secret(question.generate))
        plan.made[name] = plan.secrets[name]


def _ask_setting(plan: Plan, question: Question) -> None:
    from jackfield.config.edit import fits, values_from_texts

    default = question.default
    if isinstance(default, list | tuple):
        default = ",".join(str(one) for one in default)
    elif isinstance(default, bool):
        default = str(default).lower()
    if default is not None and not isinstance(default, str | int | float):
        return  # a whole table: --set, or an editor, is the place for it
    _say_help(question)
    while True:
        # Without a default click asks until something comes.
        shown = default if default is not None or question.required else ""
        text = str(click.prompt(question.key, default=shown, show_default=default not in (None, ""), err=True)).strip()
        if text in ("", str(default)) and not (question.required and default is None):
            return
        value = values_from_texts(plan.kind.settings, {question.key: text})[question.key]
        if plan.kind.settings is None or fits(plan.kind.settings, (question.key,), value):
            plan.values[question.key] = value
            return
        click.echo(f"{text!r} can't be used there", err=True)


def _say_help(question: Question) -> None:
    if question.help:
        click.echo(click.style(printable.line(question.help), dim=True), err=True, color=current().color)
