"""What a text looks like in each dialect."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jackfield_channel_kit.text.dialects import DIALECTS
from jackfield_channel_kit.text.render import plain, render, signal_ranges

CHAT = ("slack-mrkdwn", "whatsapp", "gchat", "discord", "telegram-html", "plain", "signal", "irc", "commonmark", "gfm")
MARKDOWN = ("commonmark", "gfm", "discord", "slack-markdown")
HTML = ("telegram-html", "telegram-rich", "matrix-html", "teams-html")
dialects = pytest.mark.parametrize("dialect", sorted(DIALECTS))


class Reader(HTMLParser):
    """Reads HTML as a platform does; fails at what is not well formed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in ("br", "hr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("br", "hr"), f"<{tag}/> has no content"
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    assert re.search(r"&(?!(amp|lt|gt|quot|#x27);)", html) is None
    return reader


@dialects
def test_depth_quotes_and_rules_are_visible(dialect: str) -> None:
    """C033."""
    shown = render("- fruit\n  - apple\n    - red\n- tools\n\n> first\n> second\n\n---\nend", dialect)
    if dialect in ("matrix-html", "teams-html", "telegram-rich"):
        shown = shown.replace("/>", ">")
        assert "<ul><li>fruit\n<ul><li>apple\n<ul><li>red</li>" in shown and "<hr>" in shown
        assert "<blockquote><p>first<br>second</p></blockquote>" in shown
        return
    lines = shown.split("\n")
    depths = [next(line for line in lines if word in line).index(word) for word in ("fruit", "apple", "red", "tools")]
    assert depths[0] < depths[1] < depths[2] and depths[3] == depths[0]
    if dialect == "telegram-html":
        assert "<blockquote>first\nsecond</blockquote>" in shown
    else:
        assert "> first" in lines and "> second" in lines
    assert any(re.fullmatch(r"[_—]{3,}", line) for line in lines)


@dialects
def test_code_is_what_the_agent_wrote(dialect: str) -> None:
    """C035."""
    code = "# not a heading\nls ~~/tmp~~ **/*.py && echo '<b>&amp;</b>'"
    shown = render(f"Use `a**b**c` and:\n```sh\n{code}\n```", dialect)
    if dialect in HTML:
        shown = read(shown).text
    elif dialect == "slack-mrkdwn":
        shown = shown.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    elif dialect == "irc":
        shown = shown.replace("\x11", "")
    assert code in shown and "a**b**c" in shown
    if dialect not in MARKDOWN:
        assert "sh\n" not in shown


@dialects
def test_every_url_is_whole_and_identifiers_are_kept(dialect: str) -> None:
    """C037."""
    text = (
        "A: https://f.example/d/q_R-7/plan_v2.md B: https://f.example/d/z_1/x.md and MAX_LEN_A * MAX_LEN_B; "
        "https://f.example/_a_/*b*?x=~~1~~&y=2. (https://f.example/p_(1)) **https://f.example/z_**"
    )
    shown = render(text, dialect)
    if dialect in HTML:
        urls = re.findall(r'href="([^"]*)"', shown)
        shown = read(shown).text
    else:
        urls = re.findall(r"https://[^\s<>|\x02]+", shown)
    urls = [url.replace("&amp;", "&") for url in urls]
    wanted = re.findall(
        r"https://[^\s]+",
        "https://f.example/d/q_R-7/plan_v2.md https://f.example/d/z_1/x.md "
        "https://f.example/_a_/*b*?x=~~1~~&y=2 https://f.example/p_(1) https://f.example/z_",
    )
    assert [re.sub(r"[.*)]+$", "", url) for url in urls] == [re.sub(r"[.*)]+$", "", url) for url in wanted]
    assert "MAX_LEN_A * MAX_LEN_B" in shown


@pytest.mark.parametrize("text", ["sensor.cellar_temp is *high", "`unclosed", "[half](", "_a_b_c"])
@dialects
def test_markers_without_a_partner_lose_nothing(dialect: str, text: str) -> None:
    """C039."""
    shown = render(text, dialect)
    if dialect in MARKDOWN:
        shown = re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", shown)
    assert (read(shown).text if dialect in HTML else shown) == text


@pytest.mark.parametrize("text", ["2 *a* b\\*c\\* \\*d\\*", "\\_x\\_ \\~y\\~ and \\`z\\`"])
@pytest.mark.parametrize("dialect", ["slack-mrkdwn", "whatsapp", "gchat"])
def test_escaped_markers_make_no_pair(dialect: str, text: str) -> None:
    shown = render(text, dialect)
    assert "\\" not in shown
    for char in "*~`":
        assert re.search(rf"(?<!\w){re.escape(char)}[dyz]{re.escape(char)}(?!\w)", shown) is None
    assert "*d*" in shown.replace("\u200b", "") or "~y~" in shown.replace("\u200b", "")


@dialects
def test_emphasis_beside_letters_shows_no_marker(dialect: str) -> None:
    """C041."""
    text = "请在**周五**前完成**验收**。 and **ok**、**完了**です。**「完了。」**です；مرحبا**قوي**ا"
    bold = ["周五", "验收", "ok", "完了", "「完了。」", "قوي"]
    shown = render(text, dialect)
    if dialect in ("slack-mrkdwn", "whatsapp", "gchat"):
        found = re.findall(r"(?<!\w)\*(\S[^*]*?)\*(?!\w)", shown)
        assert found == bold and shown.count("*") == 12
    elif dialect in HTML:
        assert re.findall(r"<(?:b|strong)>(.*?)</", shown) == bold and "*" not in read(shown).text
    elif dialect in MARKDOWN:
        assert re.findall(r"\*\*(.*?)\*\*", shown) == bold
    elif dialect == "irc":
        assert re.findall("\x02(.*?)\x02", shown) == bold and "*" not in shown
    else:
        assert "*" not in shown


@dialects
def test_nobody_is_called_by_a_mention_of_everyone(dialect: str) -> None:
    shown = render("@everyone @here <!channel> <!here|here> @room <users/all> x@all.example", dialect)
    assert re.search(r"@(everyone|here|room)", shown) is None
    assert dialect in ("plain", "signal", "irc", "whatsapp", "gchat") or re.search(r"(?<!\\)<!", shown) is None
    assert dialect != "gchat" or "<users/all>" not in shown
    assert "x@all.example" in shown.replace("\\", "")


@dialects
def test_raw_html_is_text(dialect: str) -> None:
    text = '<script>alert(1)</script>\n\n<b onclick="x">b</b> <img src=x> &lt;i&gt;'
    shown = render(text, dialect)
    if dialect in HTML:
        assert read(shown).tags <= {"p"}
        shown = read(shown).text
    if dialect in MARKDOWN:
        assert re.search(r"(?<!\\)<", shown) is None
        shown = shown.replace("\\", "")
    if dialect == "slack-mrkdwn":
        assert "<" not in shown
        shown = shown.replace("&lt;", "<").replace("&gt;", ">")
    assert "<script>alert(1)</script>" in shown and "<i>" in shown


@pytest.mark.parametrize(
    "target", ["javascript:alert(1)", "tg://join?x", "slack://x", "/etc/passwd", "data:text/html,x", "JaVaScRiPt:x"]
)
@dialects
def test_a_link_leads_only_where_a_click_is_safe(dialect: str, target: str) -> None:
    shown = render(f"[click]({target}) and ![i]({target})", dialect)
    assert "href" not in shown and "](" not in shown.replace("\\](", "") and f"<{target}" not in shown
    assert "click" in shown and target.split(":")[0] in shown


def test_a_link_whose_label_holds_the_platforms_own_marks_stays_one() -> None:
    text = "[**a|b** > c](https://x.example/?a=1|2&b=3)"
    assert render(text, "slack-mrkdwn") == "<https://x.example/?a=1%7C2&amp;b=3|a|b &gt; c>"
    assert render(text, "gchat") == "<https://x.example/?a=1%7C2&b=3|a|b \u203a c>"


def test_a_table_is_columns_or_a_table() -> None:
    text = "| name | n |\n|---|--:|\n| **ä你** | 1 |\n| b | 22 |"
    assert render(text, "slack-mrkdwn") == "```\nname |  n\n-----+---\nä你  |  1\nb    | 22\n```"
    assert render(text, "gfm") == "| name | n |\n|---|--:|\n| **ä你** | 1 |\n| b | 22 |"
    assert read(render(text, "matrix-html")).tags >= {"table", "thead", "th", "tr", "td", "strong"}
    assert read(render(text, "telegram-rich")).tags & {"table", "thead", "th", "tr", "td"} == {
        "table",
        "th",
        "tr",
        "td",
    }


def test_one_long_cell_does_not_blow_up_the_others() -> None:
    text = f"|a|b|\n|-|-|\n|{'x' * 20_000}|y|\n" + "|1|2|\n" * 2000
    assert len(render(text, "slack-mrkdwn")) < 200_000


def test_gfm_keeps_task_lists() -> None:
    assert render("- [ ] a\n- [x] b", "gfm") == "- [ ] a\n- [x] b"


def test_irc_opens_formatting_again_on_each_line() -> None:
    assert render("**a\nb** `c`", "irc") == "\x02a\x02\n\x02b\x02 \x11c\x11"
    assert render("a\x02b\r\nc\x00\x1fd", "irc") == "ab\ncd"


def test_signal_gets_ranges_in_utf16_units() -> None:
    text, ranges = signal_ranges("🎩 **b *i*** `c` ~~s~~\n\n```\nx\ny\n```")
    assert text == "🎩 b i c s\n\nx\ny"
    assert ranges == [
        (3, 3, "BOLD"),
        (5, 1, "ITALIC"),
        (7, 1, "MONOSPACE"),
        (9, 1, "STRIKETHROUGH"),
        (12, 3, "MONOSPACE"),
    ]


def test_telegram_gets_no_quote_in_a_quote() -> None:
    assert render("> a\n>> b", "telegram-html").count("<blockquote>") == 1


def test_bidirectional_text_passes_as_it_is() -> None:
    """C215."""
    for body in ("שלום, הפגישה ב-14:30 (חדר 3)", "מחיר: 40 USD → ok"):
        assert plain(body) == body


def test_what_is_nested_without_end_is_shown_all_the_same() -> None:
    for dialect in DIALECTS:
        assert "deep" in render("> " * 300 + "deep", dialect)
        assert "deep" in render("".join("  " * n + "- x\n" for n in range(100)) + "  " * 100 + "- deep", dialect)


def test_an_unknown_dialect_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="klingon"):
        render("x", "klingon")


# ---- properties

PIECES = [
    "a",
    "word",
    ".",
    ",",
    "!",
    "*",
    "**",
    "_",
    "__",
    "~",
    "~~",
    "`",
    "``",
    "```",
    "[",
    "]",
    "(",
    ")",
    "[l](https://x.example/a_b)",
    "![i](https://i.example/p.png)",
    "<",
    ">",
    "&",
    "&amp;",
    "&#10;",
    "<b>",
    "</b>",
    "|",
    "#",
    "1.",
    "-",
    "+",
    ">",
    "\\",
    "\\*",
    ":",
    "://",
    "https://x_y.example/_a_",
    "http://",
    "@everyone",
    "<!here>",
    "=",
    "---",
    "***",
    "é",
    "🎩",
    "👩\u200d👧",
    "你好",
    "한",
    "\t",
    "\x00",
    "\ufdd0",
    "\u200b",
]
STARTS = ["\n", "\n\n", "\n- ", "\n  - ", "\n> ", "\n```\n", "    ", "\n|a|b|\n|-|-|\n|", "\n1. ", "\ud83d"]
texts = st.lists(st.sampled_from([*PIECES, " ", " ", *STARTS]), max_size=60).map("".join)


@given(texts | st.text(max_size=200))
@settings(deadline=None, max_examples=300)
def test_html_is_well_formed(text: str) -> None:
    for dialect in HTML:
        read(render(text, dialect))


@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from(["a", "_", "*", "<", "&", "|", "x_y", " "]), max_size=60).map("".join)
)
@settings(deadline=None, max_examples=300)
def test_the_text_itself_survives(text: str) -> None:
    letters = re.findall(r"[a-zA-Z]", plain(text))
    for dialect in DIALECTS:
        shown = render(text, dialect)
        if dialect in HTML:
            shown = read(shown).text
        at = 0
        for letter in letters:
            at = shown.index(letter, at) + 1


@given(texts | st.text(max_size=200))
@settings(deadline=None, max_examples=300)
def test_nothing_raises_and_slack_gets_no_tag_of_its_authors(text: str) -> None:
    for dialect in DIALECTS:
        shown = render(text, dialect)
        shown.encode()
        assert not re.search("[\x00\ufdd0-\ufdef]", shown)
    slack = render(text, "slack-mrkdwn")
    assert re.sub(r"<(https?://|mailto:)[^<>]*>", "", slack).count("<") == 0
    assert re.search(r"&(?!(amp|lt|gt);)", slack) is None


@given(texts.filter(lambda text: "&#10;" not in text))
@example("~~~`")
@example("-\n\n\n- ")
@example("1. a\n\n[x]: y\n\n1. b\n\n[z]: y\n\n1. c")
@example("https://x_y.example/_a_\\#")
@example("https://x_y.example/_a_#\n-")
@example("# a \\#\n\n# b\\##\n\n# \\#")
@example("~~~a`b\n~~~~\n~~~\n```\n")
@settings(deadline=None, max_examples=500)
def test_commonmark_again_means_the_same(text: str) -> None:
    def meaning(source: str) -> str:
        shown = re.sub(r"\s+(?=</?p>)|(?<=<p>)\s+", "", render(source, "matrix-html").replace("<br>", " "))
        return re.sub(r"\s+", " ", shown.replace("<p></p>", "")).strip()

    assert meaning(render(text, "commonmark")) == meaning(text)


HOSTILE = ["[", "[a](", "![", "*", "**a ", "*a_ ", "`", "`a``b", "<", "[[x]", "> ", "|", "https://", "https://x_("]
HOSTILE += [
    "&amp;",
    "~~a ",
    "- ",
    "> - ",
    "a|b\n-|-\n",
    "[x]: y\n",
    "\\",
    "_a*",
    "@everyone",
    "*a *",
    "```\n",
    "x)",
    "_",
]


@pytest.mark.parametrize("repeated", HOSTILE)
def test_the_time_grows_no_faster_than_the_text(repeated: str) -> None:
    """C217."""
    import time

    text = repeated * (30_000 // len(repeated))
    for dialect in ("slack-mrkdwn", "commonmark", "telegram-html", "matrix-html"):
        began = time.process_time()
        render(text, dialect)
        assert time.process_time() - began < 10.0


def test_slack_s_markdown_has_no_tables_and_calls_nobody_from_code_either() -> None:
    shown = render("| a | b |\n|---|---|\n| 1 | 2 |\n\n`<!here>` x  \ny\n\n```\n<@U123>\n```", "slack-markdown")
    assert shown == "```\na | b\n--+--\n1 | 2\n```\n\n`<\u200b!here>` x\ny\n\n```\n<\u200b@U123>\n```"
