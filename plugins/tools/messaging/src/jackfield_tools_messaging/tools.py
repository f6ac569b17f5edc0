"""The tools themselves; their docstrings are what the model reads (messaging.md 7)."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

from jackfield.api import Tool, ToolContext, ToolFailed, tool
from jackfield.ids import new_id
from jackfield.models import Card, Prompt

from jackfield_tools_messaging.files import FILE_LIMIT, file_name, find_file
from jackfield_tools_messaging.reading import (
    card_fallback,
    message_number,
    read_choices,
    read_emoji,
    read_fields,
    read_links,
    read_url,
    required_text,
)

__all__ = [
    "MAX_WAIT",
    "TOOLS",
    "add_reaction",
    "ask_user_question",
    "edit_message",
    "send_card",
    "send_file",
    "send_message",
]

MAX_WAIT = 3600.0
"""Seconds that a question may wait at most."""

To = Annotated[str | None, "A destination's name; without it, the current conversation"]
MessageNumber = Annotated[int, "The number of the message"]


@tool
async def send_message(context: ToolContext, text: Annotated[str, "What to say, as Markdown"], to: To = None) -> str:
    """Send a message now, without ending the turn.

    Returns the message's number, by which it can be edited later.
    """
    sent = await context.send(text=required_text(text, "text"), to=to)
    return f"Message sent to {sent.name} (id: {sent.seq})"


@tool
async def send_file(
    context: ToolContext,
    path: Annotated[str, "The file, absolute or relative to the workspace"],
    to: To = None,
    text: Annotated[str, "A message to send with it"] = "",
    filename: Annotated[str | None, "Another name for the file, as the receiver sees it"] = None,
) -> str:
    """Send a file from the workspace or the temporary folder."""
    limit = context.settings.get("file_limit", FILE_LIMIT)
    real = find_file(required_text(path, "path"), context.workspace, limit=int(limit))
    name = file_name(filename, real)
    if name == real.name:
        sent = await context.send(text=text, to=to, files=[real])
    else:
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="jackfield-send-"))
        try:
            renamed = folder / name
            await asyncio.to_thread(shutil.copyfile, real, renamed)
            sent = await context.send(text=text, to=to, files=[renamed])
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    return f"File sent to {sent.name} (id: {sent.seq}, filename: {name})"


@tool
async def edit_message(
    context: ToolContext, message_id: MessageNumber, text: Annotated[str, "The whole new text"]
) -> str:
    """Replace the text of a message that you sent."""
    number = message_number(message_id, "message_id")
    await context.edit(number, required_text(text, "text"))
    return f"Message edit queued for #{number}"


@tool
async def add_reaction(
    context: ToolContext, message_id: MessageNumber, emoji: Annotated[str, "An emoji or its name, like thumbs_up"]
) -> str:
    """React to a message with an emoji."""
    number = message_number(message_id, "message_id")
    await context.react(number, read_emoji(emoji))
    return f"Reaction queued for #{number}"


@tool
async def send_card(
    context: ToolContext,
    title: Annotated[str, "The heading"] = "",
    text: Annotated[str, "A paragraph, as Markdown"] = "",
    fields: Annotated[list[dict[str, Any]] | None, "Facts: {name, value, inline}"] = None,
    image_url: Annotated[str | None, "An image on the web"] = None,
    links: Annotated[list[dict[str, str]] | None, "Links: {label, url}"] = None,
    fallback_text: Annotated[str, "What to show where no card can be shown"] = "",
    to: To = None,
) -> str:
    """Send a card: a heading, a paragraph, facts, an image and links, each optional but at least one."""
    facts, buttons = read_fields(fields), read_links(links)
    image = read_url(image_url, "image_url") if image_url else None
    if not (title.strip() or text.strip() or facts or buttons or image):
        raise ToolFailed("the card is empty: give at least one of title, text, fields, image_url and links")
    fallback = fallback_text.strip() or card_fallback(title.strip(), text.strip(), facts, buttons) or str(image)
    card = Card(
        title=title.strip(), text=text.strip(), fields=facts, image_url=image, links=buttons, fallback_text=fallback
    )
    sent = await context.send(card=card, to=to)
    return f"Card sent (id: {sent.seq})"


@tool(timeout=MAX_WAIT + 30)
async def ask_user_question(
    context: ToolContext,
    title: Annotated[str, "A short heading"],
    question: Annotated[str, "The question"],
    options: Annotated[
        list[str | dict[str, str]] | None, "The answers: texts, or {label, value, selectedLabel}"
    ] = None,
    timeout: Annotated[float, "Seconds to wait for the answer"] = 300,
    to: To = None,
    allow_text: Annotated[bool, "Whether an answer in one's own words is taken too"] = False,
) -> str:
    """Ask a person and wait until they have chosen. Returns the chosen option's value, or the text that they wrote."""
    if isinstance(timeout, bool) or not 1 <= timeout <= MAX_WAIT:
        raise ToolFailed(f"timeout must be between 1 and {MAX_WAIT:.0f} seconds, not {timeout}")
    prompt = Prompt(
        id=new_id("qst"),
        title=required_text(title, "title").strip(),
        question=required_text(question, "question").strip(),
        choices=read_choices(options or [], allow_text=allow_text),
        allow_text=allow_text,
    )
    return await context.ask(prompt, to=to, timeout=timeout)


TOOLS: tuple[Tool, ...] = (send_message, send_file, edit_message, add_reaction, send_card, ask_user_question)
