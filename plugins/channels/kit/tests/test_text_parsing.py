"""What platforms deliver as CommonMark."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jackfield_channel_kit.text.parse import from_html, from_irc, from_slack, from_telegram
from jackfield_channel_kit.text.render import plain, render

USERS, ROOMS = {"U1": "Ann_B"}, {"C2": "general"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*bold* _it_ ~s~ 2*3*4", "**bold** _it_ ~~s~~ 2\\*3\\*4"),
        ("Hi <@U1> and <@U9|Zoe> in <#C2> <#C3|ops>", "Hi @Ann_B and @Zoe in #general #ops"),
        ("<!here> <!subteam^S1|@team>", "@here @team"),
        (
            "<https://x.example/a_b|the *page*> <https://y.example>",
            "[the \\*page\\*](https://x.example/a_b) https://y.example",
        ),
        ("<javascript:alert(1)|x>", "\\<javascript:alert(1)|x>"),
        ("a &lt; b &amp;&amp; c &amp;lt;", "a \\< b && c \\&lt;"),
        ("`a &lt; *b*` ```x = 1\ny```", "`a < *b*` \n```\nx = 1\ny\n```"),
        ("&gt; quoted\nnot", "> quoted\nnot"),
        ("• one\n• two", "- one\n- two"),
    ],
)
def test_slack(text: str, expected: str) -> None:
    assert from_slack(text, users=USERS, channels=ROOMS) == expected


def entity(kind: str, offset: int, length: int, **more: str) -> dict[str, object]:
    return {"type": kind, "offset": offset, "length": length, **more}


def test_telegram_counts_utf16_units() -> None:
    text = "🎩 bold code link x*y"
    entities = [entity("bold", 3, 4), entity("code", 8, 4), entity("text_link", 13, 4, url="https://x.example/")]
    assert from_telegram(text, entities) == "🎩 **bold** `code` [link](https://x.example/) x\\*y"


def test_telegram_entities_nest_and_blocks_stand_alone() -> None:
    assert from_telegram("bold it end", [entity("bold", 0, 7), entity("italic", 5, 2)]) == "**bold *it*** end"
    assert from_telegram("see x=1 ok", [entity("pre", 4, 3, language="py")]) == "see \n```py\nx=1\n```\n ok"
    assert from_telegram("a\nb\nc", [entity("blockquote", 0, 3)]) == "> a\n> b\n\nc"


def test_telegram_entities_that_make_no_sense_are_left_out() -> None:
    bad = [
        entity("bold", -1, 3),
        entity("bold", 0, 0),
        entity("bold", 50, 9),
        {"type": "bold"},
        entity("text_link", 0, 1),
    ]
    assert from_telegram("plain", bad) == "plain"
    assert plain(from_telegram("abcdef", [entity("bold", 0, 4), entity("italic", 2, 4)])) == "abcdef"


def test_irc() -> None:
    text = "\x02bold\x02 \x0304,01red\x03 \x1dit \x02both\x0f x*y* \x11c`d\x11"
    assert from_irc(text) == "**bold** red *it* ***both*** x\\*y\\* ``c`d``"


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>Hi <b>bold</b>, <em>it</em><br/>next</p><p>two</p>", "Hi **bold**, *it*\\\nnext\n\ntwo"),
        ("<ul><li>a<ul><li>b</li></ul></li><li>c</li></ul>", "- a\n  - b\n- c"),
        ('<ol start="3"><li>x<li>y</ol>', "3. x\n4. y"),
        ("<blockquote><p>a</p><p>b</p></blockquote>c", "> a\n>\n> b\n\nc"),
        ('<pre><code class="language-py">x &lt; 1\n  y</code></pre>', "```\nx < 1\n  y\n```"),
        ("<a href='https://x.example/a_b'>l*k</a> <a href='javascript:x'>js</a>", "[l\\*k](https://x.example/a_b) js"),
        ("<mx-reply>old</mx-reply>new<script>bad</script><style>p{}</style>", "new"),
        ("<p style='display: none'>hidden</p>shown<!-- note --> too", "shown too"),
        ("<h2>Head <b>x</b></h2>text", "## Head **x**\n\ntext"),
        ("<table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>", "a \\| b\n\n1 \\| 2"),
        ("1 &lt; 2 *not* [x](y) # z", "1 \\< 2 \\*not\\* \\[x\\](y) # z"),
        ("<b>open <i>never closed", "**open *never closed***"),
        ('<img src="x" alt="a cat"><img src="y">', "a cat"),
    ],
)
def test_html(html: str, expected: str) -> None:
    assert from_html(html) == expected


TAGS = [
    "<b>",
    "</b>",
    "<i>",
    "<p>",
    "</p>",
    "<ul>",
    "<li>",
    "</ul>",
    "<a href='https://x.example'>",
    "</a>",
    "<pre>",
    "</pre>",
]
TAGS += [
    "<code>",
    "</code>",
    "<blockquote>",
    "</blockquote>",
    "<br>",
    "<!--",
    "<td>",
    "<h1>",
    "x",
    " ",
    "*",
    "&lt;",
    "\n",
    "<script>",
]


@given(st.lists(st.sampled_from(TAGS), max_size=60).map("".join) | st.text(max_size=200))
@settings(deadline=None, max_examples=300)
def test_nothing_raises_and_no_html_comes_through(text: str) -> None:
    for parsed in (from_html(text), from_slack(text, users={}, channels={}), from_irc(text), from_telegram(text, [])):
        render(parsed, "telegram-html").encode()
    assert "<script" not in from_html(text).replace("\\<", "")


@given(st.text("ab *_`~[]()<>#\n\\-.1", max_size=80))
@settings(deadline=None, max_examples=300)
def test_plain_text_of_a_stranger_reads_as_it_stands(text: str) -> None:
    for char in "ab":
        assert plain(from_telegram(text, [])).count(char) == text.count(char)


@pytest.mark.parametrize(
    "repeated",
    [
        "<b>",
        "<li>",
        "<",
        "&",
        "<!--",
        "<ul>",
        "<blockquote>",
        "<b><i>",
        "<b x='",
        "<?",
        "<!x",
        "`",
        "```",
        "*a ",
        "<a|",
        "_a_",
        "\x02a",
    ],
)
def test_the_time_grows_no_faster_than_the_text(repeated: str) -> None:
    """C217."""
    text = repeated * (50_000 // len(repeated))
    began = time.process_time()
    from_html(text)
    from_slack(text, users={}, channels={})
    from_irc(text)
    from_telegram(text, [entity("bold", n, 5) for n in range(1000)])
    assert time.process_time() - began < 10.0
