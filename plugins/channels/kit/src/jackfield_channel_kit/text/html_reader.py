"""Reads HTML into CommonMark: a tag that nothing closes ends with its container, an unknown one is its text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

from jackfield_channel_kit.text.dialects.commonmark import CommonMark, code_span, fenced
from jackfield_channel_kit.text.markdown import safe_target

__all__ = ["HtmlReader"]

_SKIPPED = frozenset(
    {"script", "style", "head", "title", "template", "mx-reply", "noscript", "object", "svg", "select"}
)
_MARKS = {"b": "**", "strong": "**", "i": "*", "em": "*", "del": "~~", "s": "~~", "strike": "~~"}
_BLOCKS = frozenset(
    [
        *("p", "div", "section", "article", "header", "footer", "main", "aside", "address", "center", "table", "tbody"),
        *("thead", "tr", "form", "fieldset", "figure", "dl", "dt", "dd"),
    ]
)
_CONTAINERS = frozenset({"ul", "ol", "li", "blockquote", "pre", "a", "code", *_MARKS, *(f"h{n}" for n in range(1, 7))})
_VOID = frozenset(
    {"br", "hr", "img", "input", "meta", "link", "wbr", "area", "base", "col", "embed", "source", "track"}
)
_DEEPEST = 30
"""Containers in each other; what is deeper keeps its text only."""
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.I)
_SPACE = re.compile(r"[ \t\r\n\f]+")


@dataclass(slots=True)
class _Open:
    """A container that is being read."""

    tag: str
    blocks: list[str] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)
    target: str = ""
    number: int = 0


class HtmlReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._writer = CommonMark()
        self._stack = [_Open("root")]
        self._skipping: list[str] = []
        self._cells = 0

    def result(self) -> str:
        """The whole as CommonMark."""
        while len(self._stack) > 1:
            self._end()
        self._paragraph()
        return "\n\n".join(self._stack[0].blocks)

    # ---- what the parser calls

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if self._skipping:
            if tag == self._skipping[-1]:
                self._skipping.append(tag)
            return
        if tag in _VOID:
            self._void(tag, values)
        elif tag in _SKIPPED or "hidden" in values or _HIDDEN.search(values.get("style", "")[:500]):
            self._skipping.append(tag)
        elif tag in ("td", "th"):
            if self._cells:
                self._add(" \\| ")
            self._cells += 1
        elif tag in _BLOCKS:
            self._paragraph()
            self._cells = 0
        elif tag in _CONTAINERS and len(self._stack) < _DEEPEST:
            self._begin(tag, values)

    def handle_endtag(self, tag: str) -> None:
        if self._skipping:
            if tag == self._skipping[-1]:
                self._skipping.pop()
            return
        if tag in _BLOCKS:
            self._paragraph()
        elif any(one.tag == tag for one in self._stack[1:]):
            while self._stack[-1].tag != tag:
                self._end()
            self._end()

    def handle_data(self, data: str) -> None:
        if self._skipping:
            return
        if self._inside("pre") or self._stack[-1].tag == "code":
            self._stack[-1].inline.append(data)
            return
        text = _SPACE.sub(" ", data)
        if text.startswith(" ") and self._at_space():
            text = text[1:]
        if text:
            self._add(self._writer.escaped(text))

    # ---- inside

    def _inside(self, tag: str) -> bool:
        return any(one.tag == tag for one in self._stack)

    def _at_space(self) -> bool:
        for one in reversed(self._stack):
            if one.inline:
                return one.inline[-1][-1:] in " \n"
            if one.tag not in _MARKS and one.tag != "a":
                return True
        return True

    def _add(self, text: str) -> None:
        self._stack[-1].inline.append(text)

    def _void(self, tag: str, values: dict[str, str]) -> None:
        if tag == "br":
            self._add("\n" if self._inside("pre") else "\\\n" if self._stack[-1].inline else "\n")
        elif tag == "hr":
            self._paragraph()
            self._holder().blocks.append("---")
        elif tag == "img":
            described = values.get("alt") or values.get("title") or ""
            if described:
                self._add(self._writer.escaped(_SPACE.sub(" ", described[:500])))

    def _begin(self, tag: str, values: dict[str, str]) -> None:
        if tag in _MARKS or tag in ("a", "code"):
            if tag in _MARKS and any(_MARKS.get(one.tag) == _MARKS[tag] for one in self._stack):
                return
            if tag in ("a", "code") and (self._inside(tag) or self._inside("pre")):
                return
            self._stack.append(_Open(tag, target=values.get("href", "").strip()))
            return
        self._paragraph()
        if tag == "li" and self._stack[-1].tag not in ("ul", "ol"):
            while self._stack[-1].tag == "li":
                self._end()
            if self._stack[-1].tag not in ("ul", "ol"):
                self._stack.append(_Open("ul"))
        start = values.get("start", "1")
        number = int(start) if start.isascii() and start.isdigit() and len(start) < 9 else 1
        self._stack.append(_Open(tag, number=number))

    def _holder(self) -> _Open:
        """The block container that is open."""
        for one in reversed(self._stack):
            if one.tag not in _MARKS and one.tag not in ("a", "code"):
                return one
        return self._stack[0]

    def _paragraph(self) -> None:
        """End the paragraph, and with it the marks that are still open."""
        while self._stack[-1].tag in _MARKS or self._stack[-1].tag in ("a", "code"):
            self._end()
        one = self._stack[-1]
        if one.tag == "pre":
            return
        text = self._trimmed("".join(one.inline))
        one.inline.clear()
        if text:
            one.blocks.append(self._writer.paragraph(text, False))

    @staticmethod
    def _trimmed(text: str) -> str:
        text = text.strip(" \n")
        while text.endswith("\\\n") or text.startswith("\\\n"):
            text = text.removesuffix("\\\n").removeprefix("\\\n").strip(" \n")
        if text.endswith("\\") and not text.endswith("\\\\"):
            text = text[:-1].rstrip()
        return "\n".join(line.strip(" ") for line in text.split("\n"))

    def _end(self) -> None:
        """Close the innermost container and put what it holds into the next."""
        if self._stack[-1].tag not in _MARKS and self._stack[-1].tag not in ("a", "code", "pre"):
            self._paragraph()
        one = self._stack.pop()
        outer = self._stack[-1]
        if one.tag in _MARKS or one.tag in ("a", "code"):
            self._end_inline(one, outer)
            return
        if one.tag == "pre":
            outer.blocks.append(fenced("".join(one.inline).removeprefix("\n"), ""))
        elif one.tag == "li":
            marker = "- " if outer.tag == "ul" else f"{outer.number}. "
            outer.number += 1
            tight = all(block.startswith(("- ", "1. ")) for block in one.blocks[1:])
            content = ("\n" if tight else "\n\n").join(one.blocks)
            outer.blocks.append(marker + _prefixed(content, " " * len(marker))[len(marker) :])
        elif one.tag in ("ul", "ol"):
            if one.blocks:
                outer.blocks.append("\n".join(one.blocks))
        elif one.tag == "blockquote":
            if one.blocks:
                outer.blocks.append(_prefixed("\n\n".join(one.blocks), "> "))
        elif one.blocks:
            outer.blocks.append("#" * int(one.tag[1]) + " " + " ".join(" ".join(one.blocks).split()))

    def _end_inline(self, one: _Open, outer: _Open) -> None:
        text = "".join(one.inline)
        core = text.strip(" \n")
        if not core:
            outer.inline.append(text)
            return
        lead, trail = text[: text.index(core[0])], text[text.rindex(core[-1]) + 1 :]
        if one.tag == "code":
            core = code_span(_SPACE.sub(" ", core))
        elif one.tag == "a":
            core = self._link(core, one.target)
        else:
            core = _MARKS[one.tag] + core + _MARKS[one.tag]
        outer.inline.append(lead + core + trail)

    def _link(self, label: str, target: str) -> str:
        if not safe_target(target) or any(char.isspace() for char in target):
            return label
        if label == self._writer.escaped(target):
            return target
        return f"[{label.replace(chr(10), ' ')}]({self._writer.destination(target)})"


def _prefixed(text: str, prefix: str) -> str:
    return "\n".join((prefix + line).rstrip() if not line else prefix + line for line in text.split("\n"))
