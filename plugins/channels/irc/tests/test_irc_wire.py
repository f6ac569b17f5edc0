"""Lines, lengths, names, the login and the pace, without a socket."""

from __future__ import annotations

import asyncio
import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jackfield.clock import UnixMs
from jackfield.errors import AuthFailed, RateLimited, TooLarge, Transient
from jackfield.models import ConversationChange
from jackfield.testing import ManualClock
from jackfield_channel_irc.batches import Batches
from jackfield_channel_irc.identity import Ids
from jackfield_channel_irc.lines import Line, parse, written
from jackfield_channel_irc.login import Login, ended_by
from jackfield_channel_irc.network import Network
from jackfield_channel_irc.pace import Pace
from jackfield_channel_irc.reading import Reader, mentioned, without_call
from jackfield_channel_irc.rooms import Rooms
from jackfield_channel_irc.settings import IrcSettings
from jackfield_channel_irc.writing import MOST_LINES, lines_of, pieces
from pydantic import ValidationError

PLAIN = {"host": "127.0.0.1", "tls": False, "nick": "miso"}


def line(text: str) -> Line:
    found = parse(text.encode())
    assert found is not None
    return found


def network(*lines: str) -> Network:
    made = Network("miso")
    for text in lines:
        made.heard(line(text))
    return made


class TestLines:
    def test_a_line_with_tags_source_and_trailing_text_is_read(self) -> None:
        found = line(r"@time=2026-01-01T00:00:00Z;+draft/reply=a\:b\s\\c;flag :ann!a@h PRIVMSG #x :hello  : there ")
        assert found.tags == {"time": "2026-01-01T00:00:00Z", "+draft/reply": "a;b \\c", "flag": ""}
        assert (found.source, found.nick, found.command) == ("ann!a@h", "ann", "PRIVMSG")
        assert found.params == ("#x", "hello  : there ")

    def test_old_clients_umlauts_are_read(self) -> None:
        found = parse(b":a!b@c PRIVMSG miso :gr\xfc\xdfe")
        assert found is not None and found.param(1) == "grüße"

    @settings(deadline=None)
    @given(st.binary(max_size=600))
    def test_any_bytes_can_be_read(self, raw: bytes) -> None:
        parse(raw)

    @settings(deadline=None)
    @given(st.text(max_size=300), st.text(max_size=50))
    def test_what_anybody_wrote_stays_one_line(self, text: str, tag: str) -> None:
        raw = written("PRIVMSG", "#x", text, tags={"+draft/react": tag})
        assert raw.endswith(b"\r\n") and not {10, 13, 0} & set(raw[:-2])
        assert raw.count(b"PRIVMSG #x :") >= 1

    @settings(deadline=None)
    @given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80))
    def test_a_tag_comes_back_as_it_was(self, value: str) -> None:
        found = parse(written("TAGMSG", "#x", tags={"+t": value})[:-2])
        assert found is not None and found.tags["+t"] == value

    @pytest.mark.parametrize("target", ["", "a b", ":x"])
    def test_a_target_that_would_be_something_else_is_refused(self, target: str) -> None:
        with pytest.raises(ValueError, match="PRIVMSG"):
            written("PRIVMSG", target, "hi")


class TestNetwork:
    def test_names_are_folded_as_the_server_says(self) -> None:
        assert network().fold("Ann[x]\\~") == "ann{x}|^"
        assert network(":s 005 miso CASEMAPPING=ascii :are supported").fold("Ann[x]~") == "ann[x]~"
        assert network(":s 005 miso CASEMAPPING=strict-rfc1459 :are supported").fold("A[~") == "a{~"

    def test_what_a_line_holds_follows_from_our_own_mask(self) -> None:
        known = network(":miso!~jf@some.host.example JOIN #x")
        whole = f":miso!~jf@some.host.example PRIVMSG #x :{'x' * known.room('#x')}\r\n"
        assert len(whole) == 512
        assert known.room("#x") > network().room("#x"), "without knowing it, the longest is assumed"

    def test_a_new_host_counts_at_once(self) -> None:
        known = network(":miso!jf@a.example JOIN #x")
        before = known.room("#x")
        known.heard(line(":miso!jf@a.example CHGHOST jf a.much.longer.example"))
        assert known.room("#x") == before - len("much.longer.")
        known.heard(line(":s 396 miso b.example :is now your displayed host"))
        assert known.room("#x") == before

    def test_parts_of_channels_are_no_people(self) -> None:
        one = network(":s 005 miso CHANTYPES=# STATUSMSG=@+ :are supported")
        assert one.is_room("#x") and one.is_room("@#x") and not one.is_room("ann") and not one.is_room("&x")


class TestLogin:
    def login(self, password: str | None = None, **settings: object) -> tuple[Login, Network]:
        made = IrcSettings.model_validate({**PLAIN, "tls": True, **settings})
        net = Network(made.nick)
        return Login(made, net, password=password, account_password="sesame"), net

    def say(self, login: Login, text: str) -> list[str]:
        return [out.decode().rstrip() for out in login.feed(line(text))]

    def test_what_is_offered_is_asked_for_and_nothing_else(self) -> None:
        login, net = self.login()
        assert self.say(login, ":s CAP * LS * :batch draft/other") == []
        assert self.say(login, ":s CAP * LS :server-time sasl=PLAIN") == ["CAP REQ :batch server-time"]
        assert self.say(login, ":s CAP * ACK :batch server-time") == ["CAP END"]
        assert net.caps == {"batch", "server-time"}

    def test_a_refused_request_is_no_harm(self) -> None:
        login, net = self.login()
        self.say(login, ":s CAP * LS :batch")
        assert self.say(login, ":s CAP * NAK :batch") == ["CAP END"]
        assert net.caps == set()

    def test_an_account_logs_in_with_its_password(self) -> None:
        login, _ = self.login(sasl="plain", account="bot", account_password="x")
        assert self.say(login, ":s CAP * LS :sasl") == ["CAP REQ sasl"]
        assert self.say(login, ":s CAP * ACK :sasl") == ["AUTHENTICATE PLAIN"]
        (answer,) = self.say(login, "AUTHENTICATE +")
        assert base64.b64decode(answer.split()[1]) == b"bot\0bot\0sesame"
        assert self.say(login, ":s 903 * :ok") == ["CAP END"]

    def test_a_certificate_logs_in_by_itself(self) -> None:
        login, _ = self.login(sasl="external", cert_file="/x.pem")
        self.say(login, ":s CAP * LS :sasl")
        assert self.say(login, ":s CAP * ACK :sasl") == ["AUTHENTICATE EXTERNAL"]
        assert self.say(login, "AUTHENTICATE +") == ["AUTHENTICATE +"]

    def test_a_long_password_goes_in_pieces(self) -> None:
        login, _ = self.login(sasl="plain", account="b" * 90, account_password="x")
        login._account_password = "p" * 118  # 300 bytes, so exactly 400 in base64
        self.say(login, ":s CAP * LS :sasl")
        self.say(login, ":s CAP * ACK :sasl")
        answers = self.say(login, "AUTHENTICATE +")
        assert [len(one) for one in answers] == [413, 14] and answers[1] == "AUTHENTICATE +"

    @pytest.mark.parametrize(
        "answer", [":s CAP * LS :batch", ":s 904 * :SASL authentication failed", ":s 001 miso :hi"]
    )
    def test_without_the_account_we_do_not_go_on(self, answer: str) -> None:
        login, _ = self.login(sasl="plain", account_password="x")
        with pytest.raises(AuthFailed) as caught:
            self.say(login, answer)
        assert "sesame" not in f"{caught.value} {caught.value.fix} {login!r}"

    def test_a_taken_nick_gives_way_to_the_alternates(self) -> None:
        login, net = self.login(alternates=("soup",))
        asked = [self.say(login, f":s 433 * {net.nick} :taken") for _ in range(6)]
        assert asked[:3] == [["NICK soup"], ["NICK miso_"], ["NICK miso__"]]
        with pytest.raises(Transient, match="all alternates"):
            self.say(login, ":s 433 * x :taken")

    def test_the_last_word_tells_why(self) -> None:
        assert isinstance(ended_by("Closing Link: [K-Lined: spam]", "on"), RateLimited)
        assert isinstance(ended_by("Your host is trying to (re)connect too fast -- throttled", "login"), RateLimited)
        assert isinstance(ended_by("Access denied: Bad password?", "login"), AuthFailed)
        assert isinstance(ended_by("Killed (ann (your password is weak))", "on"), Transient)


class TestSettings:
    @pytest.mark.parametrize(
        ("wrong", "says"),
        [
            ({"host": "irc.example.org", "tls": False}, "on this machine"),
            ({"sasl": "plain", "tls": True}, "account_password"),
            ({"sasl": "external", "tls": True}, "cert_file"),
            ({"channels": ["#a,#b"]}, "channels"),
            ({"channels": ["#a b"]}, "channels"),
            ({"nick": "9lives"}, "nick"),
            ({"keys": {"#x": "k"}}, "not in channels"),
        ],
    )
    def test_what_can_not_work_is_refused(self, wrong: dict[str, object], says: str) -> None:
        with pytest.raises(ValidationError, match=says):
            IrcSettings.model_validate({**PLAIN, **wrong})


class TestRooms:
    def test_keys_come_first_and_long_lists_are_cut(self) -> None:
        names = [f"#{'x' * 40}{number}" for number in range(20)]
        rooms = Rooms([*names, "#Key"], {"#key": "s"}, network())
        joins = [out.decode().split() for out in rooms.joins()]
        assert joins[0][1].startswith("#Key,#") and joins[0][2] == "s"
        assert [name for join in joins for name in join[1].split(",")] == ["#Key", *names]
        assert all(len(" ".join(join)) < 500 for join in joins)

    def test_a_kick_and_the_return_are_told(self) -> None:
        rooms = Rooms(["#X"], {}, network())
        assert rooms.heard(line(":miso!j@h JOIN #X")) is None and not rooms.problem()
        assert rooms.heard(line(":ann!a@h KICK #x miso :\x02out\x02")) == ("#x", ConversationChange.REMOVED)
        assert rooms.problem() == "not in #X: kicked by ann: out" and rooms.is_missing("#x")
        rooms.heard(line(":s 474 miso #x :banned"))
        assert rooms.problem() == "not in #X: banned"
        assert rooms.heard(line(":miso!j@h JOIN #x")) == ("#x", ConversationChange.JOINED)
        assert not rooms.problem()

    def test_what_happens_to_others_is_not_ours(self) -> None:
        rooms = Rooms(["#x"], {}, network())
        for text in (":miso!j@h JOIN #x", ":ann!a@h PART #x", ":ann!a@h QUIT :*.net *.split", ":op!o@h KICK #x ann :x"):
            assert rooms.heard(line(text)) is None
        assert not rooms.problem()


class TestReading:
    @pytest.mark.parametrize(
        "text", ["miso: what now?", "@sam @Miso what now?", "hey miso, @MISO!", "MISO", "ask miso.", "(miso)"]
    )
    def test_a_nick_of_its_own_is_a_mention(self, text: str) -> None:
        """C044."""
        assert mentioned(text, network())

    @pytest.mark.parametrize(
        "text",
        [
            "@misosoup",
            "mail to x@miso.example",
            "`@Miso`",
            "https://h.example/@Miso",
            "miso|away says",
            "miso_",
            "[miso]x",
        ],
    )
    def test_a_part_of_something_else_is_none(self, text: str) -> None:
        """C044."""
        assert not mentioned(text, network())

    def test_a_nick_with_brackets_is_found(self) -> None:
        other = Network("[miso]")
        assert mentioned("hey {MISO}, there", other) and not mentioned("hey miso", other)

    def test_only_a_call_is_taken_away(self) -> None:
        assert without_call("Miso: what now?", network()) == "what now?"
        assert without_call("miso, hi", network()) == "hi"
        assert without_call("miso is nice", network()) == "miso is nice"
        assert without_call("miso:", network()) == "miso:"

    def test_an_account_is_the_identity_and_differs_by_network(self) -> None:
        tagged = line("@account=Ann :nick!u@h PRIVMSG miso :hi")
        people = [Reader(name, lambda _: False).person(tagged, network()).handle for name in ("one", "two")]
        assert people == ["ann@one", "ann@two"]

    def test_equal_messages_are_told_apart_and_found_again_in_a_replay(self) -> None:
        ids = Ids()
        live = [ids.of("#x", "ann", "ok", UnixMs(5_000_900)), ids.of("#x", "ann", "ok", UnixMs(5_000_950))]
        replayed = [ids.of("#x", "ann", "ok", UnixMs(5_000_000), "1") for _ in range(2)]
        assert len(set(live)) == 2 and replayed == live

    def test_a_batch_in_a_replay_is_one_too(self) -> None:
        batches = Batches()
        batches.heard(line(":s BATCH +a chathistory #x"))
        batches.heard(line("@batch=a :s BATCH +b other"))
        inside = line("@batch=b :ann!a@h PRIVMSG #x :hi")
        assert batches.replay(inside)
        batches.heard(line(":s BATCH -b"))
        assert not batches.replay(inside)

    @settings(deadline=None)
    @given(st.binary(max_size=300))
    def test_any_line_can_be_read(self, raw: bytes) -> None:
        found = parse(b":ann!a@h PRIVMSG miso :" + raw.replace(b"\n", b""))
        assert found is not None
        Reader("net", lambda _: False).read(found, network(), UnixMs(1_800_000_000_000), "")


class TestWriting:
    @settings(deadline=None)
    @given(st.text(max_size=3000), st.integers(100, 450))
    def test_no_line_is_longer_than_it_may_be(self, text: str, limit: int) -> None:
        """C025."""
        try:
            lines = [one for piece in pieces(text, limit) for one in lines_of(piece, limit)]
        except TooLarge:
            return
        assert all(0 < len(one.encode()) <= limit for one in lines)
        assert not any(set(one) & {"\n", "\r", "\0", "\x01"} for one in lines)

    def test_a_long_answer_comes_in_pieces_of_few_lines(self) -> None:
        text = "\n".join(f"- item {number}" for number in range(100))
        found = pieces(text, 430)
        assert [one for piece in found for one in lines_of(piece, 430)] == [f"- item {number}" for number in range(100)]
        assert max(len(lines_of(piece, 430)) for piece in found) <= 9

    def test_an_empty_line_of_code_is_kept_and_one_of_prose_is_not(self) -> None:
        assert lines_of("```\na\n\nb\n```\n\nend", 400) == ["\x11a\x11", " ", "\x11b\x11", "end"]

    def test_a_flood_is_refused(self) -> None:
        for text in ("x" * 5_000_000, "x\n\n" * (MOST_LINES + 1)):
            with pytest.raises(TooLarge):
                lines_of(text, 400)


class TestPace:
    async def test_a_burst_goes_at_once_and_then_one_at_a_time(self) -> None:
        """C083."""
        clock = ManualClock()
        pace = Pace(5, 2.0, clock)
        times: list[float] = []
        begun = clock.monotonic()

        async def send() -> None:
            for _ in range(8):
                await pace.take()
                times.append(clock.monotonic() - begun)

        task = asyncio.create_task(send())
        await clock.advance(0)
        assert times == [0.0] * 5 and not pace.spare()
        await clock.advance(10)
        await task
        assert times[5:] == [2.0, 4.0, 6.0]
