"""Messages to Slack: posting, changing and taking away, in the markup that the workspace takes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from jackfield.api import SendResult
from jackfield.clock import Clock
from jackfield.errors import BadContent, ChannelError, ChatNotFound, SendNotAllowed, TooLarge
from jackfield.models import Address, MessageRef, OutFile, OutMessage, TextUnit
from jackfield_channel_kit.prompt import PromptBook
from jackfield_channel_kit.selfguard import SelfGuard
from jackfield_channel_kit.text.split import rendered_parts

from jackfield_channel_slack.api import UPLOAD_SECONDS, WebApi, user_of
from jackfield_channel_slack.blocks import blocks, escaped, summary

__all__ = ["CAPTION", "FILES_AT_ONCE", "LIMIT", "Markup", "Outgoing", "fields_of", "parts_of", "split"]

log = logging.getLogger(__name__)

Markup = Literal["markdown", "mrkdwn", "plain"]

LIMIT = 12_000
"""Characters of `markdown_text`; counted in UTF-16 units, which are never fewer."""
PLAIN = 8_000
"""Characters of plain text: escaped, each may become five of the 40,000 that `text` takes (C025)."""
LONGEST = 30 * LIMIT
"""What is longer is no text that anybody split."""
FILES_AT_ONCE = 10
CAPTION = 3000
"""Characters of the text that a file may bring along."""
_DIALECTS = {"markdown": "slack-markdown", "mrkdwn": "slack-mrkdwn", "plain": "plain"}
_SHARE_TRIES = 5
_SHARE_SECONDS = 0.4


def parts_of(text: str, markup: Markup, limit: int = LIMIT) -> list[tuple[str, str]]:
    """CommonMark pieces, each with what it is in that markup, as long as one message takes.

    Raises:
        TooLarge: longer than anything that is sent.
    """
    if not text.strip():
        return []
    if len(text) > LONGEST:
        raise TooLarge(f"a text of {len(text)} characters", limit=LIMIT)
    limit = min(limit, PLAIN) if markup == "plain" else limit
    parts = rendered_parts(text, limit, TextUnit.UTF16, _DIALECTS[markup])
    return [(source, escaped(part) if markup == "plain" else part) for source, part in parts]


def fields_of(rendered: str, markup: Markup, *, update: bool = False) -> dict[str, Any]:
    """A text as the arguments of `chat.postMessage` or `chat.update`."""
    if markup == "markdown":
        return {"markdown_text": rendered}
    fields: dict[str, Any] = {"text": rendered, "mrkdwn": markup == "mrkdwn"}
    return fields | ({"blocks": []} if update else {})  # else those of the old text stay


class Outgoing:
    """For one instance."""

    def __init__(self, api: WebApi, markup: Markup, own: SelfGuard, prompts: PromptBook, clock: Clock) -> None:
        self._api = api
        self.markup: Markup = markup
        self._own = own
        self._prompts = prompts
        self._clock = clock

    async def send(self, address: Address, message: OutMessage) -> SendResult:
        """All of a message, in this order: files with a short text, or text; then card and question.

        Raises:
            ChannelError: what Slack said.
        """
        markup: Markup = "plain" if message.plain else self.markup
        hidden = message.ephemeral_for is not None and not address.platform_id.startswith("D")
        whom = user_of(message.ephemeral_for.handle) if hidden and message.ephemeral_for is not None else None
        ids: list[str] = []
        text = message.text
        if message.prompt is not None or message.card is not None:
            ids.append(await self._special(address, message, whom))
        elif message.files:
            caption = parts_of(text, "plain" if message.plain else "mrkdwn", CAPTION)
            if len(caption) > 1:
                ids += [await self._text(address, part, markup, None) for part in parts_of(text, markup)]
                caption = []
            ids += await self._files(address, message.files, caption[0][1] if caption else None)
        else:
            ids += [await self._text(address, part, markup, whom) for part in parts_of(text, markup)]
        return SendResult(ids=tuple(ids))

    async def edit(self, ref: MessageRef, message: OutMessage) -> SendResult:
        """The new text in the old messages; more or fewer of them as it needs (channels.md R8)."""
        markup: Markup = "plain" if message.plain else self.markup
        old = [one for one in ref.ids if not _is_file(one)]
        if not old:
            raise ChatNotFound("what a file says can't be edited")
        parts = parts_of(message.text, markup)
        if not parts:
            raise BadContent("an edit needs a text")
        ids: list[str] = []
        for at, (source, rendered) in enumerate(parts):
            if at < len(old):
                ids.append(await self.update(ref.address, old[at], source, rendered, markup))
            else:
                ids.append(await self._text(ref.address, (source, rendered), markup, None))
        for extra in old[len(parts) :]:
            await self.delete(ref.address, extra)
        return SendResult(ids=(*ids, *(one for one in ref.ids if _is_file(one))))

    async def post(self, address: Address, fields: Mapping[str, Any], whom: str | None = None) -> str:
        """One message; its `ts`.  With `whom` only that user sees it."""
        conversation = address.platform_id
        where = {"channel": conversation, "thread_ts": address.thread_id}
        if whom is not None:
            said = await self._api.call("chat.postEphemeral", {**where, "user": whom, **fields}, key=conversation)
            ts = said.get("message_ts")
        else:
            said = await self._api.call("chat.postMessage", {**where, **fields}, key=conversation)
            ts = said.get("ts")
        return self.sent(address, str(ts or ""))

    async def update(self, address: Address, ts: str, source: str, rendered: str, markup: Markup) -> str:
        """Change one message to a text."""
        where = {"channel": address.platform_id, "ts": ts}
        try:
            await self._api.call(
                "chat.update", {**where, **fields_of(rendered, markup, update=True)}, key="chat.update"
            )
        except BadContent:
            if markup != "markdown":
                raise
            fields = fields_of(parts_of(source, "mrkdwn")[0][1], "mrkdwn", update=True)
            await self._api.call("chat.update", {**where, **fields}, key="chat.update")
        return ts

    async def delete(self, address: Address, message_id: str) -> None:
        """Take one message or file away; one that is gone is fine."""
        gone = ("message_not_found", "file_not_found", "file_deleted")
        if _is_file(message_id):
            await self._api.call("files.delete", {"file": message_id}, tolerate=gone)
        else:
            await self._api.call("chat.delete", {"channel": address.platform_id, "ts": message_id}, tolerate=gone)

    # ---- inside

    async def _text(self, address: Address, part: tuple[str, str], markup: Markup, whom: str | None) -> str:
        source, rendered = part
        try:
            return await self.post(address, fields_of(rendered, markup), whom)
        except BadContent as problem:
            if markup != "markdown":
                raise
            log.info("Slack refused Markdown, so it gets mrkdwn: %s", problem)
        return await self.post(address, fields_of(parts_of(source, "mrkdwn")[0][1], "mrkdwn"), whom)

    async def _special(self, address: Address, message: OutMessage, whom: str | None) -> str:
        """A card or a question, in one message."""
        if message.prompt is not None:
            self._prompts.sent(message.prompt.id, [choice.value for choice in message.prompt.choices])
        fields = {"text": summary(message), "blocks": blocks(message)}
        if message.plain and message.prompt is None:
            del fields["blocks"]
        return await self.post(address, fields, whom)

    async def _files(self, address: Address, files: Sequence[OutFile], caption: str | None) -> list[str]:
        """The three steps of an upload; only the last one shows anything to anybody."""
        uploaded: list[dict[str, str]] = []
        for file in files:
            data = await asyncio.to_thread(_contents, file)
            said = await self._api.form("files.getUploadURLExternal", {"filename": file.name, "length": len(data)})
            url, file_id = str(said.get("upload_url") or ""), str(said.get("file_id") or "")
            headers = {"content-type": "application/octet-stream"}
            await self._api.http.request(
                "POST", url, content=data, headers=headers, idempotent=True, timeout=UPLOAD_SECONDS
            )
            uploaded.append({"id": file_id, "title": file.name})
        await self._api.call(
            "files.completeUploadExternal",
            {
                "files": uploaded,
                "channel_id": address.platform_id,
                "thread_ts": address.thread_id,
                "initial_comment": caption,
            },
            key=address.platform_id,
        )
        ts = await self._shared(address.platform_id, uploaded[0]["id"])
        return [self.sent(address, ts)] if ts is not None else [one["id"] for one in uploaded]

    async def _shared(self, conversation: str, file_id: str) -> str | None:
        """The `ts` of the message that a file came with, which Slack makes a moment later; None when it takes long."""
        for _ in range(_SHARE_TRIES):
            with contextlib.suppress(ChannelError):
                shares = ((await self._api.read("files.info", {"file": file_id})).get("file") or {}).get("shares") or {}
                for places in (shares.get("public"), shares.get("private")):
                    for share in (places or {}).get(conversation) or ():
                        if isinstance(share, Mapping) and share.get("ts"):
                            return str(share["ts"])
            await self._clock.sleep(_SHARE_SECONDS)
        return None

    def sent(self, address: Address, ts: str) -> str:
        """Know it for ours when it is told to us."""
        self._own.sent(f"{address.platform_id}:{ts}")
        return ts


def split(message: OutMessage, markup: Markup) -> list[OutMessage]:
    """A message as those that Slack takes one by one: text, files, then card and question."""
    texts = [source for source, _ in parts_of(message.text, "plain" if message.plain else markup)]
    bare = replace(message, text="", files=(), prompt=None, card=None)
    parts = [replace(bare, text=text) for text in texts]
    batches = [message.files[at : at + FILES_AT_ONCE] for at in range(0, len(message.files), FILES_AT_ONCE)]
    for number, batch in enumerate(batches):
        if number == 0 and len(parts) == 1 and len(parts_of(parts[0].text, "mrkdwn", CAPTION)) == 1:
            parts[0] = replace(parts[0], files=batch)
        else:
            parts.append(replace(bare, files=batch))
    if message.prompt is not None or message.card is not None:
        # Questions and cards are sections, which are short: a long text goes before them.
        if len(parts) == 1 and not parts[0].files and len(parts_of(parts[0].text, "mrkdwn", CAPTION)) <= 4:
            parts[0] = replace(parts[0], prompt=message.prompt, card=message.card)
        else:
            parts.append(replace(bare, prompt=message.prompt, card=message.card))
    return parts


def _is_file(message_id: str) -> bool:
    return message_id.startswith("F")


def _contents(file: OutFile) -> bytes:
    """
    Raises:
        SendNotAllowed: it can't be read, or is empty, which Slack refuses.
        TooLarge: it is not the file that was checked.
    """
    try:
        data = Path(file.path).read_bytes()
    except OSError as problem:
        raise SendNotAllowed(f"the file {file.name!r} can't be read: {problem.strerror}") from None
    if len(data) > file.size:
        raise TooLarge(f"the file {file.name!r} grew to {len(data)} bytes", limit=file.size)
    if not data:
        raise SendNotAllowed(f"the file {file.name!r} is empty")
    return data
