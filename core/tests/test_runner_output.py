"""The model's words to what is sent."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jackfield.ids import AgentGroupId
from jackfield.models import Address, Destination, DestinationKind
from jackfield.runner.addressing import Target, plan_output, resolve
from jackfield.runner.output import Segment, parse_output, visible_output

HERE = Address("slack", "work", "C1", "t1")
PLACES = [
    Destination(
        name="family", kind=DestinationKind.CHANNEL, display_name="The Family", address=Address("tg", "b", "1")
    ),
    Destination(name="work", kind=DestinationKind.CHANNEL, display_name="Work!", address=HERE.chat),
    Destination(name="helper", kind=DestinationKind.AGENT, display_name="Helper", agent_group_id=AgentGroupId("ag_1")),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hi", [(None, "hi")]),
        ('<message to="a">hi</message> note', [("a", "hi"), (None, "note")]),
        ('<message to="a">1</message>\n<message to="b">2</message>', [("a", "1"), ("b", "2")]),
        ("<message to='a'>1</message>", [("a", "1")]),
        ('<MESSAGE  to = "a b" >1</MESSAGE >', [("a b", "1")]),
        ('<message to="a&amp;b">1</message>', [("a&b", "1")]),
        ("<message>1</message>", [(None, "1")]),
        ('<message to="a">say </message> to end</message> x', [("a", "say </message> to end"), (None, "x")]),
        ('<message to="a">open <message to="b">x</message>', [("a", "open"), ("b", "x")]),
        ('<message to="a">never closed', [("a", "never closed")]),
        ('<message to="a"></message>x', [(None, "x")]),
        ("<internal>no</internal>yes", [(None, "yes")]),
        ("<internal>no", []),
        ("<think>a<think>b</think>c</think>d", [(None, "d")]),
        ("<thinking>a</think>d", [(None, "d")]),
        ("<internal><message to='a'>x</message></internal>y", [(None, "y")]),
        ("<internal>a<think>b</internal>c</think>", [(None, "c")]),
        ("stray</internal> end", [(None, "stray end")]),
        ("<final>the answer</final>", [(None, "the answer")]),
        ("`<internal>x</internal>`", [(None, "`<internal>x</internal>`")]),
        ("```\n<internal>x\n```\ny", [(None, "```\n<internal>x\n```\ny")]),
        ("~~~\n</message>\n~~~", [(None, "~~~\n</message>\n~~~")]),
        ('<message to="a">```py\n</message>\n```</message>z', [("a", "```py\n</message>\n```"), (None, "z")]),
        ("```\n<internal>forgotten fence</internal> x", [(None, "```\n x")]),
        ("it's a ` tick <internal>x</internal>", [(None, "it's a ` tick")]),
        ("``a ` <internal>`` b", [(None, "``a ` <internal>`` b")]),
        ("&lt;internal&gt;x", [(None, "&lt;internal&gt;x")]),
        ("a < b and <messages> and <b>", [(None, "a < b and <messages> and <b>")]),
        ('<message to="a" /> x', [(None, "x")]),
        ("", []),
    ],
)
def test_grammar(text: str, expected: list[tuple[str | None, str]]) -> None:
    """Messaging 6.4; C167; pitfall 33."""
    assert parse_output(text) == [Segment(to, words) for to, words in expected]


PIECES = st.lists(
    st.sampled_from(
        [
            '<message to="a">', '<message to="b">', "</message>", "<internal>", "</internal>", "<think>", "</thinking>",
            "<final>", "</final>", "`", "``", "```", "\n```\n", "\n", "~~~\n", "word ", "<", ">", "<mess", "</",
            "secret ", "&lt;", " ", "<internal/>", "```py\n",
        ]
    ),
    max_size=24,
).map("".join)  # fmt: skip


@settings(max_examples=600)
@given(PIECES, st.data())
def test_what_is_shown_while_it_grows_is_never_taken_back(text: str, data: st.DataObject) -> None:
    """C167: nothing internal, no half tag, no other place."""
    cut = data.draw(st.integers(0, len(text)))
    whole, shown = parse_output(text), visible_output(text[:cut])
    assert len(shown) <= len(whole)
    for early, late in zip(shown, whole, strict=False):
        assert early.to == late.to
        assert late.text.startswith(early.text)


@given(st.text(alphabet="<>/`~mesagintrl=\"' \n", max_size=200))
def test_any_text_has_an_output(text: str) -> None:
    parse_output(text)
    visible_output(text)


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<message ",
        '<message to="a">',
        "`",
        "``` ` ",
        "<internal>",
        "<internal></think>",
        "\n```\n",
        "[[((",
        "~~~\n``a",
    ],
)
def test_time_grows_with_the_length_only(piece: str) -> None:
    """C217."""

    def cost(size: int) -> float:
        text = piece * (size // len(piece))
        best = 9.0
        for _ in range(5):
            begun = time.thread_time()
            parse_output(text)
            visible_output(text)
            best = min(best, time.thread_time() - begun)
        return best

    # Eight times the text: linear is 8, quadratic would be 64.
    assert cost(240_000) < 24 * cost(30_000) + 0.01


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("family", PLACES[0].address),
        ("Family ", PLACES[0].address),
        ("@family", PLACES[0].address),
        ("the family", PLACES[0].address),
        ("work", HERE),
        ("(current conversation)", HERE),
        ("Current Conversation", HERE),
        ("current_conversation", HERE),
        (None, HERE),
    ],
)
def test_names_and_labels_are_understood(name: str | None, address: Address) -> None:
    """C005; C050: the thread stays within its chat."""
    found = resolve(name, PLACES, HERE)
    assert found is not None and found.address == address


def test_an_agent_is_a_place_too_and_a_thread_does_not_leak() -> None:
    """Pitfall 31."""
    helper, family = resolve("helper", PLACES, HERE), resolve("family", PLACES, HERE)
    assert helper == Target("helper", None, AgentGroupId("ag_1"), "helper")
    assert family is not None and family.address is not None and family.address.thread_id is None


def test_unknown_and_ambiguous_names_mean_nothing() -> None:
    twins = [
        Destination(name=f"x{n}", kind=DestinationKind.CHANNEL, display_name="Twin", address=Address("t", "b", f"{n}"))
        for n in "12"
    ]
    assert resolve("nobody", PLACES, HERE) is None and resolve("twin", twins, HERE) is None
    assert resolve(None, PLACES, None) is None


def test_what_has_no_place_is_named() -> None:
    segments = [Segment(None, "a"), Segment("family", "b"), Segment("nobody", "c")]
    plan = plan_output(segments, PLACES, None, wrapped_only=False)
    assert [text for _, _, text in plan.sends] == ["b"]
    assert plan.unknown == (segments[2],) and plan.unwrapped == ("a",)
    assert plan_output(segments, PLACES, HERE, wrapped_only=True).unwrapped == ("a",)
