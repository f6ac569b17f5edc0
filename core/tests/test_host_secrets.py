"""The vault: sealing, the key file, who gets what, and what becomes of all that under another key or a kill."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jackfield.clock import SystemClock, UnixMs
from jackfield.config.home import Home
from jackfield.errors import ConfigError, Conflict, NotFound, SecretsLocked, UsageError
from jackfield.host.secrets import keyfile
from jackfield.host.secrets.held import HeldSecret, check_name, given_to, variable
from jackfield.host.secrets.importing import from_dotenv, from_toml
from jackfield.host.secrets.reading import find_secret, secret_source
from jackfield.host.secrets.sealing import Sealer, Unreadable, key_id
from jackfield.host.secrets.vault import VALUE_LIMIT, NewSecret, Vault
from jackfield.ids import AgentGroupId, SecretId, new_id
from jackfield.models import AgentGroup
from jackfield.redaction import MASK, REDACTOR
from jackfield.store import Store, groups
from jackfield.store.secrets import SealedSecret, SecretKind

NOW = UnixMs(1_700_000_000_000)
G, OTHER = AgentGroupId("ag_01m8pv4gb6aqgcajm9ad"), AgentGroupId("ag_01m8pv4gb6aqgcajm9ae")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


@asynccontextmanager
async def opened(home: Home) -> AsyncIterator[Vault]:
    store = Store(home.state_db)
    await store.open()
    vault = Vault(home, store, SystemClock())
    try:
        await vault.open()
        yield vault
    finally:
        await store.close()


async def with_groups(home: Home) -> None:
    store = Store(home.state_db)
    await store.open()
    for number, id_ in enumerate((G, OTHER)):
        group = AgentGroup(id=id_, name=f"G{number}", folder=f"g{number}", created_at=NOW)
        await store.write(groups.add_agent_group, group)
    await store.close()


def new(name: str, value: str, **more: object) -> NewSecret:
    return NewSecret(name=name, value=value, **more)  # type: ignore[arg-type]  # the values' types vary


def row(**changes: object) -> SealedSecret:
    bare = SealedSecret(
        id=SecretId("sec_01m8pv4gb6aqgcajm9ad"),
        name="TOKEN",
        kind=SecretKind.GENERIC,
        agent_group_id=None,
        key_id="",
        sealed=b"",
        created_at=NOW,
        updated_at=NOW,
    )
    return replace(bare, **changes)  # type: ignore[arg-type]  # the values' types vary


# ---- sealing


@given(st.text(max_size=200))
def test_a_value_comes_back_as_it_was_and_looks_different_each_time(value: str) -> None:
    sealer = Sealer.of(b"k" * 32)
    try:
        value.encode()
    except UnicodeEncodeError:
        return
    first, second = sealer.seal(row(), value), sealer.seal(row(), value)
    assert first != second
    assert sealer.open(row(sealed=first)) == sealer.open(row(sealed=second)) == value


@pytest.mark.parametrize(
    "changes",
    [
        {"id": SecretId("sec_01m8pv4gb6aqgcajm9ae")},
        {"name": "OTHER"},
        {"kind": SecretKind.API_KEY},
        {"agent_group_id": G},
    ],
)
def test_a_value_can_not_be_moved_to_another_row_name_kind_or_scope(changes: dict[str, object]) -> None:
    sealer = Sealer.of(b"k" * 32)
    moved = row(sealed=sealer.seal(row(), "value"), **changes)
    with pytest.raises(Unreadable):
        sealer.open(moved)


@pytest.mark.parametrize("cut", [0, 5, 12, 27])
def test_what_is_cut_off_changed_or_of_another_key_can_not_be_read(cut: int) -> None:
    sealer = Sealer.of(b"k" * 32)
    sealed = sealer.seal(row(), "value")
    changed = bytes([sealed[cut] ^ 1])
    for wrong in (sealed[:cut], sealed[:cut] + changed + sealed[cut + 1 :]):
        with pytest.raises(Unreadable):
            sealer.open(row(sealed=wrong))
    with pytest.raises(Unreadable):
        Sealer.of(b"l" * 32).open(row(sealed=sealed))


def test_the_derived_keys_are_part_of_the_format() -> None:
    """A changed purpose, salt or hash would lose every stored secret."""
    assert key_id(bytes(range(32))) == "b5bc87794fc2ad86"
    sealed = bytes.fromhex("fa355baeab4724a61a1e96eb955bae23cc80351f9af128682d579cdf4c7d520adb0b1f")
    assert Sealer.of(bytes(range(32))).open(row(sealed=sealed)) == "as ever"


# ---- who gets what


def held(
    name: str, *, group: AgentGroupId | None = None, to: tuple[AgentGroupId, ...] = (), **more: object
) -> HeldSecret:
    made = row(id=SecretId(new_id("sec")), name=name, agent_group_id=group, **more)
    return HeldSecret(made, f"{name} {group}", frozenset(to))


def test_a_group_gets_its_own_and_what_is_assigned_or_all_and_its_own_wins() -> None:
    """Appendix D.22; pc#127, pc#129."""
    shared, own, clash_shared, clash_own = (
        held("G_ONE"),
        held("S_ONE", group=G, to=(G,)),
        held("BOTH", to=(G,)),
        held("BOTH", group=G, to=(G,)),
    )
    everything = [shared, own, clash_shared, clash_own, held("FOREIGN", group=OTHER, to=(OTHER, G))]
    selective = given_to(everything, G, "selective")
    assert {name: one.why for name, one in selective.items()} == {"S_ONE": "scoped", "BOTH": "scoped"}
    assert selective["BOTH"].secret is clash_own
    every = given_to(reversed(everything), G, "all")
    assert {name: one.why for name, one in every.items()} == {"G_ONE": "all", "S_ONE": "scoped", "BOTH": "scoped"}
    assert every["BOTH"].secret is clash_own
    assert given_to([clash_shared], G, "selective")["BOTH"].why == "assigned"
    assert given_to(everything, AgentGroupId("ag_01m8pv4gb6aqgcajm9af"), "selective") == {}


def test_a_channels_secret_reaches_no_agent_even_if_it_gets_all_or_was_assigned() -> None:
    token = held("TOKEN", kind=SecretKind.CHANNEL_TOKEN, to=(G,))
    assert given_to([token], G, "all") == {}
    assert given_to([token], G, "selective") == {}


@pytest.mark.parametrize("name", ["1A", "a-b", "A B", "", "A=B", "Ä", "a" * 129])
def test_names_for_agents_are_names_of_variables(name: str) -> None:
    with pytest.raises(UsageError):
        check_name(name, SecretKind.GENERIC)
    assert check_name("_A1", SecretKind.GENERIC) == "_A1"
    assert check_name("work-token", SecretKind.CHANNEL_TOKEN) == "work-token"


def test_what_may_be_the_value_is_not_shown_as_a_bad_name() -> None:
    with pytest.raises(UsageError) as refused:
        check_name("p4ss!word with+signs", SecretKind.GENERIC)
    assert "p4ss" not in str(refused.value)


# ---- the vault


async def test_the_first_secret_makes_the_key_and_the_store_holds_no_plain_value(home: Home) -> None:
    async with opened(home) as vault:
        assert not home.master_key.exists()
        assert await vault.put(
            [new("TOKEN", "plainword88"), new("work-token", "x" * 20, kind=SecretKind.CHANNEL_TOKEN)]
        )
        assert vault.find("work-token") == "x" * 20
        assert vault.find("TOKEN") == "plainword88"
        assert vault.find("NONE") is None
    found = home.master_key.stat()
    assert (found.st_size, stat.S_IMODE(found.st_mode)) == (32, 0o600)
    assert b"plainword88" not in b"".join(path.read_bytes() for path in home.root.glob("state.db*"))
    assert find_secret(home, "TOKEN") == "plainword88"
    assert secret_source(home, "TOKEN") == "store"
    assert secret_source(home, "NONE") is None
    assert REDACTOR("it is plainword88") == f"it is {MASK}"


async def test_the_environment_goes_before_the_store(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable("work-token"), "fromoutside")
    async with opened(home) as vault:
        await vault.put([new("work-token", "frominside", kind=SecretKind.CHANNEL_TOKEN)])
        assert vault.find("work-token") == find_secret(home, "work-token") == "fromoutside"
        assert secret_source(home, "work-token") == "environment"
        assert REDACTOR.values("fromoutside") == MASK


async def test_a_new_value_keeps_id_kind_and_assignments_and_is_another_version(home: Home) -> None:
    await with_groups(home)
    async with opened(home) as vault:
        await vault.put([new("KEY", "first-value", kind=SecretKind.API_KEY)])
        assert await vault.assign(vault.at("KEY", None), G)
        assert not await vault.assign(vault.at("KEY", None), G)
        before, versions, revision = vault.at("KEY", None), vault.versions(G, "selective"), vault.revision
        assert await vault.put([new("KEY", "second-value")]) == [False]
        after = vault.at("KEY", None)
        assert (after.row.id, after.row.kind, after.groups) == (before.row.id, SecretKind.API_KEY, frozenset({G}))
        assert vault.given_to(G, "selective") == {"KEY": "second-value"}
        assert vault.versions(G, "selective") != versions
        assert "value" not in str(vault.versions(G, "selective"))
        assert vault.revision > revision
        assert await vault.unassign(after, G)
        assert vault.given_to(G, "selective") == {}


async def test_a_secret_of_a_group_is_assigned_to_it_at_once_and_goes_with_it(home: Home) -> None:
    """pc#127."""
    await with_groups(home)
    async with opened(home) as vault:
        await vault.put(
            [new("OWN", "own-value-1", group=G), new("OWN", "other-value", group=OTHER), new("OWN", "global-one")]
        )
        assert vault.given_to(G, "selective") == {"OWN": "own-value-1"}
        assert vault.given_to(OTHER, "all") == {"OWN": "other-value"}
        with pytest.raises(UsageError, match="another group"):
            await vault.assign(vault.at("OWN", G), OTHER)
        await vault.remove(vault.at("OWN", G))
        assert vault.given_to(G, "all") == {"OWN": "global-one"}
        with pytest.raises(NotFound):
            vault.at("OWN", G)


@pytest.mark.parametrize(
    "wrong",
    [
        new("A", ""),
        new("A", "x" * (VALUE_LIMIT + 1)),
        new("A", "nul\0inside"),
        new("a-b", "value"),
        new("A", "value", kind=SecretKind.CHANNEL_TOKEN, group=G),
    ],
)
async def test_of_several_all_are_stored_or_none(home: Home, wrong: NewSecret) -> None:
    async with opened(home) as vault:
        with pytest.raises(UsageError) as refused:
            await vault.put([new("GOOD", "good-value"), wrong])
        assert vault.held == ()
        assert not wrong.value or wrong.value not in str(refused.value)
        assert not home.master_key.exists()


async def test_a_channels_secret_can_not_be_assigned(home: Home) -> None:
    await with_groups(home)
    async with opened(home) as vault:
        await vault.put([new("T", "token-value", kind=SecretKind.CHANNEL_TOKEN)])
        with pytest.raises(UsageError, match="never reach an agent"):
            await vault.assign(vault.at("T", None), G)


# ---- another key


async def test_a_missing_or_other_key_changes_nothing_and_refuses_everything(home: Home) -> None:
    async with opened(home) as vault:
        await vault.put([new("A", "value-of-a")])
    right = home.master_key.read_bytes()
    database = home.state_db.read_bytes()
    for key in (None, os.urandom(32), b"short"):
        home.master_key.unlink(missing_ok=True)
        if key is not None:
            home.master_key.write_bytes(key)
            home.master_key.chmod(0o600)
        async with opened(home) as vault:
            assert isinstance(vault.problem, SecretsLocked)
            assert vault.problem.fix
            assert [one.value for one in vault.held] == [None]
            for refused in (vault.put([new("D", "value-of-d")]), vault.rotate()):
                with pytest.raises(SecretsLocked):
                    await refused
            with pytest.raises(SecretsLocked):
                vault.find("A")
            with pytest.raises(Conflict):
                await vault.remove(vault.at("A", None))
        with pytest.raises(SecretsLocked):
            find_secret(home, "A")
        assert (home.master_key.read_bytes() if key is not None else None) == key
    assert home.state_db.read_bytes() == database
    home.master_key.write_bytes(right)
    async with opened(home) as vault:
        assert vault.find("A") == "value-of-a"


async def test_with_another_key_accepted_old_secrets_are_kept_and_return_with_theirs(home: Home) -> None:
    """C139: K1 a, b, c; K2 d; back to K1: a, b, c readable, d not."""
    async with opened(home) as vault:
        await vault.put([new(name, f"value-of-{name}") for name in "abc"])
    first = home.master_key.read_bytes()
    home.master_key.unlink()
    async with opened(home) as vault:
        assert await vault.accept_key() == (0, 3)
        assert vault.problem is None
        await vault.put([new("d", "value-of-d")])
        with pytest.raises(Conflict, match="kept"):
            await vault.put([new("a", "another-a")])
        assert vault.find("d") == "value-of-d"
        with pytest.raises(SecretsLocked, match="'a'"):
            vault.find("a")
    home.master_key.write_bytes(first)
    async with opened(home) as vault:
        assert vault.problem is not None
        assert await vault.accept_key() == (3, 1)
        assert [vault.find(name) for name in "abc"] == ["value-of-a", "value-of-b", "value-of-c"]
        assert vault.at("d", None).value is None
        assert await vault.rotate() == 3
        assert vault.at("d", None).value is None
        await vault.remove(vault.at("d", None), force=True)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
async def test_a_key_that_others_may_read_or_replace_is_not_used(home: Home, mode: int) -> None:
    async with opened(home) as vault:
        await vault.put([new("A", "value-of-a")])
    home.master_key.chmod(mode)
    async with opened(home) as vault:
        assert "chmod 600" in str(vault.problem and vault.problem.fix)
    home.master_key.chmod(0o600)
    home.root.chmod(0o777)
    async with opened(home) as vault:
        assert "chmod 700" in str(vault.problem and vault.problem.fix)


async def test_a_link_in_place_of_the_key_is_not_followed(home: Home) -> None:
    (home.root / "elsewhere").write_bytes(b"k" * 32)
    home.master_key.symlink_to(home.root / "elsewhere")
    async with opened(home) as vault:
        with pytest.raises(SecretsLocked):
            await vault.put([new("A", "value-of-a")])


async def test_a_row_that_was_tampered_with_is_unreadable_and_the_others_are_not(home: Home) -> None:
    async with opened(home) as vault:
        await vault.put([new("A", "value-of-a"), new("B", "value-of-b")])
    db = sqlite3.connect(home.state_db)
    db.execute("UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE name = 'B') WHERE name = 'A'")
    db.commit()
    db.close()
    async with opened(home) as vault:
        assert [one.value for one in vault.held] == [None, "value-of-b"]


async def test_a_key_that_is_lost_while_it_is_in_use_goes_on_reading_and_writes_nothing(home: Home) -> None:
    async with opened(home) as vault:
        await vault.put([new("A", "value-of-a")])
        home.master_key.rename(home.root / "away")
        for refused in (vault.put([new("B", "value-of-b")]), vault.rotate()):
            with pytest.raises(SecretsLocked, match="missing"):
                await refused
        assert not home.master_key.exists()
        await vault.refresh()
        assert vault.find("A") == "value-of-a"
        assert "missing" in str(vault.complaints())
        (home.root / "away").rename(home.master_key)
        await vault.refresh()
        assert vault.complaints() == []
        assert await vault.put([new("B", "value-of-b")]) == [True]


# ---- a new key


async def test_rotation_seals_everything_anew_and_keeps_values_and_versions(home: Home) -> None:
    await with_groups(home)
    async with opened(home) as vault:
        with pytest.raises(NotFound):
            await vault.rotate()
        await vault.put([new("A", "value-of-a", group=G), new("B", "value-of-b")])
        key, rows, versions = home.master_key.read_bytes(), vault.held, vault.versions(G, "all")
        assert await vault.rotate() == 2
        assert home.master_key.read_bytes() != key
        assert stat.S_IMODE(home.master_key.stat().st_mode) == 0o600
        assert keyfile.leftovers(home) == []
        assert all(old.row.sealed != one.row.sealed for old, one in zip(rows, vault.held, strict=True))
        assert vault.given_to(G, "all") == {"A": "value-of-a", "B": "value-of-b"}
        assert vault.versions(G, "all") == versions, "no runner is replaced for it"
        await vault.put([new("C", "value-of-c")])
    async with opened(home) as vault:
        assert [one.value for one in vault.held] == ["value-of-a", "value-of-b", "value-of-c"]


@pytest.mark.parametrize(
    "point", ["keyfile._write", "keyfile.prepare", "store", "keyfile.finish", "finished", "keyfile.tidy"]
)
async def test_a_kill_in_the_middle_of_a_rotation_leaves_a_readable_store(home: Home, point: str) -> None:
    """Before and after each of its steps."""
    async with opened(home) as vault:
        await vault.put([new("A", "value-of-a"), new("B", "value-of-b")])
    code = f"""
        import asyncio, os, signal
        from pathlib import Path
        from jackfield.clock import SystemClock
        from jackfield.config.home import Home
        from jackfield.host.secrets import keyfile
        from jackfield.host.secrets.vault import Vault
        from jackfield.store import Store

        def die(*args, **kwargs):
            os.kill(os.getpid(), signal.SIGKILL)

        async def main():
            home = Home(Path({str(home.root)!r}))
            store = Store(home.state_db)
            await store.open()
            vault = Vault(home, store, SystemClock())
            await vault.open()
            if {point!r} == "store":
                store.write = die
            elif {point!r} == "finished":
                vault._reload = die
            else:
                setattr(keyfile, {point!r}.partition(".")[2], die)
            await vault.rotate()

        asyncio.run(main())
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert find_secret(home, "A") == "value-of-a", "also before anybody has put things right"
    async with opened(home) as vault:
        assert vault.problem is None
        assert [one.value for one in vault.held] == ["value-of-a", "value-of-b"]
        assert keyfile.leftovers(home) == []
        await vault.put([new("C", "value-of-c")])
    async with opened(home) as vault:
        assert [one.value for one in vault.held] == ["value-of-a", "value-of-b", "value-of-c"]


async def test_a_rotation_goes_on_when_who_asked_for_it_goes_away(home: Home) -> None:
    async with opened(home) as vault:
        await vault.put([new("A", "value-of-a")])
        key = home.master_key.read_bytes()
        asked = asyncio.create_task(vault.rotate())
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await vault.put([new("B", "value-of-b")])
        assert home.master_key.read_bytes() != key
    async with opened(home) as vault:
        assert [one.value for one in vault.held] == ["value-of-a", "value-of-b"]


# ---- files of others


def test_a_dotenv_file_is_read_as_its_writers_mean_it() -> None:
    text = textwrap.dedent(
        r"""
        # a comment
        PLAIN=value # said later
        export EXPORTED = spaced
        SINGLE='as it is \n # here'
        DOUBLE="two\nlines \"quoted\""
        PEM="-----BEGIN
        body
        -----END"
        EMPTY=
        HASH=a#b
        """
    )
    assert from_dotenv(text) == {
        "PLAIN": "value",
        "EXPORTED": "spaced",
        "SINGLE": r"as it is \n # here",
        "DOUBLE": 'two\nlines "quoted"',
        "PEM": "-----BEGIN\nbody\n-----END",
        "HASH": "a#b",
    }


@pytest.mark.parametrize("text", ["A=1\nsecretvalue\n", 'A="secretvalue\n', "1A=secretvalue"])
def test_a_dotenv_file_that_is_none_is_refused_by_line_and_without_what_stands_there(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        from_dotenv(text)
    assert "line" in str(refused.value)
    assert "secretvalue" not in str(refused.value)


def test_the_old_file_is_read() -> None:
    assert from_toml('work-token = "value"\n# x\nother = "two"') == {"work-token": "value", "other": "two"}
    for wrong in ("secretvalue", "a = 1", 'a = "secretvalue'):
        with pytest.raises(ConfigError) as refused:
            from_toml(wrong)
        assert "secretvalue" not in str(refused.value)
