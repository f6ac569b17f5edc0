"""Messages as Bot API requests.  Pure: what is sent, in which pieces and how it is marked up.

A piece of text is an ordinary message in HTML, or a rich one where that shows what HTML can't: tables, headings,
lists, or more than fits an ordinary one.  All of it is rendered before it is measured (C025).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jackfield.errors import Unsupported
from jackfield.models import Card, MessageRef, OutFile, OutMessage, Prompt, TextUnit
from jackfield.models.splitting import measure
from jackfield_channel_kit.prompt import encode
from jackfield_channel_kit.text.render import plain, render
from jackfield_channel_kit.text.split import rendered_parts, split

__all__ = [
    "ALBUM",
    "CAPTION_LIMIT",
    "LABEL_LIMIT",
    "RICH_LIMIT",
    "TEXT_LIMIT",
    "Request",
    "as_documents",
    "html",
    "keyboard",
    "ordinary",
    "parts",
    "pieces",
    "reply_fields",
    "requests",
    "shown_text",
]

TEXT_LIMIT = 4096
"""UTF-16 units of an ordinary message."""
RICH_LIMIT = 32_768
"""Characters of a rich one."""
CAPTION_LIMIT = 1024
LABEL_LIMIT = 64
ALBUM = 10
"""Files in one album."""
PHOTO_BYTES = 10_000_000
_BLOCKS = 500
_COLUMNS = 20
_BLOCK = re.compile(r"<(?:p|li|tr|h[1-6]|pre|blockquote|ul|ol|table|hr)\b")
_STRUCTURE = re.compile(r"<(?:table|h[1-6]|ul|ol)\b")
_METHODS = {
    "image/jpeg": "photo", "image/png": "photo", "image/webp": "photo", "image/gif": "animation", "video/mp4": "video",
    "audio/mpeg": "audio", "audio/mp4": "audio",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Request:
    """One call that makes one message, or an album.

    `kinds` tells for each file what it is sent as; `text` is the CommonMark that was rendered into `arguments`.
    """

    method: str
    arguments: dict[str, Any] = field(default_factory=dict)
    files: tuple[OutFile, ...] = ()
    kinds: tuple[str, ...] = ()
    text: str = ""


def html(text: str) -> dict[str, Any]:
    """CommonMark as the arguments of an ordinary message, whatever its length."""
    return {"text": render(text, "telegram-html"), "parse_mode": "HTML"}


def pieces(text: str, *, rich: bool, plainly: bool = False) -> list[tuple[str, dict[str, Any]]]:
    """A text as messages: the CommonMark of each, and what `send(Rich)Message` and `editMessageText` take for it."""
    if not text.strip():
        return []
    if plainly:
        return [(part, {"text": plain(part)}) for part in split(text, TEXT_LIMIT, TextUnit.UTF16, "plain")]
    if not rich:
        found = rendered_parts(text, TEXT_LIMIT, TextUnit.UTF16, "telegram-html")
        return [(part, {"text": shown, "parse_mode": "HTML"}) for part, shown in found]
    made: list[tuple[str, dict[str, Any]]] = []
    for part, shown in rendered_parts(text, RICH_LIMIT, TextUnit.CODEPOINTS, "telegram-rich"):
        if _worth(shown) and _fits(shown):
            made.append((part, {"rich_message": {"html": shown}}))
        else:
            made += pieces(part, rich=False)
    return made


def _worth(shown: str) -> bool:
    return len(shown) > TEXT_LIMIT or _STRUCTURE.search(shown) is not None


def _fits(shown: str) -> bool:
    """Whether it keeps the limits of rich messages besides the length."""
    return (
        len(_BLOCK.findall(shown)) <= _BLOCKS
        and max((row.count("<th>") for row in shown.split("<tr>")), default=0) <= _COLUMNS
    )


def parts(message: OutMessage, *, rich: bool) -> list[OutMessage]:
    """The message cut so that each part is one request."""
    bare = replace(message, text="", files=(), prompt=None, card=None)
    found = [replace(bare, text=part) for part, _ in pieces(message.text, rich=rich, plainly=message.plain)]
    for number, files in enumerate(_batches(message.files)):
        if number == 0 and len(found) == 1 and _caption(found[0]) is not None:
            found[0] = replace(found[0], files=files)
        else:
            found.append(replace(bare, files=files))
    if message.prompt is not None or message.card is not None:
        if len(found) == 1 and not found[0].files:
            whole = replace(found[0], prompt=message.prompt, card=message.card)
            if len(pieces(shown_text(whole), rich=rich, plainly=message.plain)) == 1:
                return [whole]
        found.append(replace(bare, prompt=message.prompt, card=message.card))
    return [part if number == 0 else replace(part, reply_to=None) for number, part in enumerate(found)]


def requests(message: OutMessage, *, rich: bool) -> list[Request]:
    """What to call for it; one request for each of `parts`, more for a message that was not cut.

    Raises:
        Unsupported: the id of its prompt is too long for a button.
    """
    made: list[Request] = []
    for part in parts(message, rich=rich):
        common = _common(part)
        markup = keyboard(part)
        if part.files:
            made.append(_with_files(part, common))
            continue
        common |= _preview(part.card)
        made += _texts(pieces(shown_text(part), rich=rich, plainly=part.plain), common, markup)
    return made


def ordinary(request: Request) -> list[Request]:
    """A rich message that was refused, as ordinary ones."""
    common = {name: value for name, value in request.arguments.items() if name not in ("rich_message", "reply_markup")}
    return _texts(pieces(request.text, rich=False), common, request.arguments.get("reply_markup"))


def as_documents(request: Request) -> Request:
    """A picture that Telegram can't show, as the file that it is."""
    return replace(request, method="sendDocument", kinds=("document",))


def _texts(
    texts: Sequence[tuple[str, dict[str, Any]]], common: dict[str, Any], markup: dict[str, Any] | None
) -> list[Request]:
    """Requests for pieces: the first is the reply, the last bears the buttons."""
    made: list[Request] = []
    for number, (text, given) in enumerate(texts):
        arguments = {**common, **given}
        if number > 0:
            arguments.pop("reply_parameters", None)
        if markup and number == len(texts) - 1:
            arguments["reply_markup"] = markup
        method = "sendRichMessage" if "rich_message" in given else "sendMessage"
        if method == "sendRichMessage":
            arguments.pop("link_preview_options", None)
        made.append(Request(method, arguments, text=text))
    return made


def shown_text(message: OutMessage) -> str:
    """The text with the words of its card and prompt, as CommonMark."""
    return "\n\n".join(piece for piece in (message.text, _card(message.card), _prompt(message.prompt)) if piece.strip())


def keyboard(message: OutMessage) -> dict[str, Any] | None:
    """The buttons below it, each in a row of its own.

    Raises:
        Unsupported: the prompt's id is too long for a button.
    """
    rows: list[list[dict[str, str]]] = []
    if message.card is not None:
        rows += [[{"text": link.label, "url": link.url}] for link in message.card.links]
    if message.prompt is not None:
        try:
            rows += [
                [{"text": choice.label, "callback_data": encode(message.prompt.id, index)}]
                for index, choice in enumerate(message.prompt.choices)
            ]
        except ValueError as problem:
            raise Unsupported(str(problem)) from None
    return {"inline_keyboard": rows} if rows else None


def _common(message: OutMessage) -> dict[str, Any]:
    given: dict[str, Any] = {}
    if message.silent:
        given["disable_notification"] = True
    return given | reply_fields(message.reply_to)


def reply_fields(ref: MessageRef | None) -> dict[str, Any]:
    """What makes a request a reply; nothing for an id that is none of Telegram's (C052)."""
    if ref is None or not ref.ids or not ref.ids[0].isdecimal():
        return {}
    return {"reply_parameters": {"message_id": int(ref.ids[0]), "allow_sending_without_reply": True}}


def _prompt(prompt: Prompt | None) -> str:
    if prompt is None:
        return ""
    return "\n\n".join(piece for piece in (f"**{prompt.title}**" if prompt.title else "", prompt.question) if piece)


def _card(card: Card | None) -> str:
    if card is None:
        return ""
    fields = "  \n".join(f"**{one.name}:** {one.value}" for one in card.fields)
    return "\n\n".join(piece for piece in (f"**{card.title}**" if card.title else "", card.text, fields) if piece)


def _preview(card: Card | None) -> dict[str, Any]:
    """A card's image is shown as the preview of its link."""
    if card is None or card.image_url is None:
        return {}
    return {"link_preview_options": {"url": card.image_url, "prefer_large_media": True, "show_above_text": True}}


# ---- files


def _batches(files: Sequence[OutFile]) -> list[tuple[OutFile, ...]]:
    return [tuple(files[at : at + ALBUM]) for at in range(0, len(files), ALBUM)]


def _caption(message: OutMessage) -> dict[str, Any] | None:
    """Its text as a caption, None when it is too long for one."""
    if not message.text.strip():
        return {}
    shown = plain(message.text) if message.plain else render(message.text, "telegram-html")
    if measure(shown, TextUnit.UTF16) > CAPTION_LIMIT:
        return None
    return {"caption": shown, **({} if message.plain else {"parse_mode": "HTML"})}


def _kind(file: OutFile) -> str:
    """What a file is sent as: pictures are seen at once, everything else arrives as it is."""
    kind = _METHODS.get(file.mime or "", "document")
    return "document" if kind == "photo" and file.size > PHOTO_BYTES else kind


def _with_files(message: OutMessage, common: dict[str, Any]) -> Request:
    caption = _caption(message) or {}
    kinds = tuple(_kind(file) for file in message.files)
    if len(message.files) == 1:
        return Request(f"send{kinds[0].capitalize()}", {**common, **caption}, message.files, kinds)
    if not set(kinds) <= {"photo", "video"} and set(kinds) != {"audio"}:
        kinds = ("document",) * len(kinds)  # other mixtures are refused
    media = [
        {"type": kind, "media": f"attach://file{number}", **(caption if number == 0 else {})}
        for number, kind in enumerate(kinds)
    ]
    return Request("sendMediaGroup", {**common, "media": media}, message.files, kinds)
