"""The one parser: CommonMark, tables and strikethrough; raw HTML is text.

Differs from markdown-it's presets in what chats need: URLs keep every character that their author wrote (C037), a bare
URL is a link so that no underscore in it becomes emphasis, and emphasis closes beside CJK letters (C041).
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

__all__ = ["clean", "parse", "safe_target", "url_end"]

DEEPEST = 40
"""Levels of blocks in blocks (a list in a list counts two).  What is nested deeper is shown without its lists and
quotes."""
_UNSENDABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufdd0-\ufdef]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_LINE_END = re.compile(r"\r\n?")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_SAFE = frozenset({"http", "https", "mailto", "tel", "matrix", "xmpp", "irc", "ircs"})
_IN_URL = re.compile(r"""[^\s<>\[\]"`\\^{|}\u3000-\u303f\uff00-\uffef]+""")
_TO_ENCODE = re.compile(r"""[\x00-\x20\x7f<>"\\^`{|}]""")


def clean(text: str) -> str:
    """The text with plain line ends, without control characters, noncharacters and lone surrogates."""
    if "\r" in text:
        text = _LINE_END.sub("\n", text)
    text = _UNSENDABLE.sub("", text)
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def safe_target(href: str) -> bool:
    """Whether a link may lead there: an address with a scheme that opens a page, a mail, a call or a chat."""
    scheme = _SCHEME.match(href)
    return scheme is not None and scheme[1].lower() in _SAFE


def parse(text: str, env: dict[str, Any] | None = None) -> list[Token]:
    """The tokens of a cleaned text.  The link definitions that it holds are found in `env["references"]`."""
    tokens = _parser().parse(text, {} if env is None else env)
    if any(token.level >= DEEPEST - 1 for token in tokens):
        tokens = _flat_parser().parse(text, {} if env is None else env)
    return tokens


@cache
def _parser() -> MarkdownIt:
    return _made(("html_block",))


@cache
def _flat_parser() -> MarkdownIt:
    return _made(("html_block", "list", "blockquote"))


def _made(without: tuple[str, ...]) -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST})
    parser.enable(["table", "strikethrough"]).disable([*without, "html_inline"])
    parser.inline.terminator_re = re.compile(r"[\n!&*:<\[\\\]_`~]")
    parser.inline.ruler.at("emphasis", _emphasis)
    parser.inline.ruler.push("bare_url", _bare_url)
    vars(parser).update(validateLink=_any, normalizeLink=_target, normalizeLinkText=str)
    return parser


def _any(target: str) -> bool:
    """A link is one wherever it leads; `safe_target` judges when it is rendered."""
    return True


def _target(target: str) -> str:
    return _TO_ENCODE.sub(lambda found: f"%{ord(found[0]):02X}", target)


def _bare_url(state: StateInline, silent: bool) -> bool:
    """`https://...` in running text, up to what can't be in a URL or ends the sentence."""
    at = state.pos
    source = state.src
    if state.linkLevel > 0 or not source.startswith("://", at):
        return False
    scheme = "https" if source[max(0, at - 5) : at].lower() == "https" else source[max(0, at - 4) : at].lower()
    start = at - len(scheme)
    if scheme not in ("http", "https") or (start > 0 and source[start - 1].isalnum()):
        return False
    end = url_end(source, at + 3, state.posMax)
    if end <= at + 3 or not state.pending.lower().endswith(scheme):
        return False
    if not silent:
        state.pending = state.pending[: -len(scheme)]
        opened = state.push("link_open", "a", 1)
        opened.attrs = {"href": source[start:end]}
        opened.markup = "bare"
        state.push("text", "", 0).content = source[start:end]
        state.push("link_close", "a", -1).markup = "bare"
    state.pos = end
    return True


def url_end(source: str, start: int, most: int) -> int:
    """Where a bare URL ends whose part behind `://` begins at `start`."""
    found = _IN_URL.match(source, start, most)
    return _sentence_end(source, start, found.end()) if found is not None else start


def _sentence_end(source: str, start: int, end: int) -> int:
    """Where a URL that reaches to `end` at most really ends."""
    closing = 0
    opening = source.count("(", start, end)
    counted = False
    while end > start:
        last = source[end - 1]
        if last == ")":
            if not counted:
                closing, counted = source.count(")", start, end), True
            if closing <= opening:
                break
            closing -= 1
        elif last not in ".,;:!?*_~'" or (last == "_" and (end - 1 > start and source[end - 2].isalnum())):
            break
        end -= 1
    return end


def _emphasis(state: StateInline, silent: bool) -> bool:
    """CommonMark's rule, but beside a CJK letter `**` counts as beside a space, as its writers expect."""
    marker = state.src[state.pos]
    if silent or marker not in "*_":
        return False
    from markdown_it.rules_inline.state_inline import Delimiter

    run = state.scanDelims(state.pos, marker == "*")
    can_open, can_close = run.can_open, run.can_close
    if marker == "*" and not (can_open and can_close):
        before = state.src[state.pos - 1] if state.pos > 0 else " "
        end = state.pos + run.length
        after = state.src[end] if end < state.posMax else " "
        can_open = can_open or (_cjk(before) and not after.isspace())
        can_close = can_close or (_cjk(after) and not before.isspace())
    for _ in range(run.length):
        state.push("text", "", 0).content = marker
        state.delimiters.append(
            Delimiter(
                marker=ord(marker),
                length=run.length,
                token=len(state.tokens) - 1,
                end=-1,
                open=can_open,
                close=can_close,
            )
        )
    state.pos += run.length
    return True


def _cjk(char: str) -> bool:
    code = ord(char)
    return (
        0x2E80 <= code <= 0xA4CF or 0xAC00 <= code <= 0xD7A3 or 0xF900 <= code <= 0xFAFF or 0x20000 <= code <= 0x3FFFF
    )
