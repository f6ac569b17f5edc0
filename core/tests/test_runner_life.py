"""The life of a runner, a real child process: start, heart, idle end, replacement, and faults of what it loads."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from jackfield.mailbox import RunnerMailbox
from jackfield.models import (
    AckStatus,
)
from runner_kit import chat, done, place


async def test_an_engine_that_falls_over_is_opened_again_with_its_continuation(tmp_path: Path) -> None:
    """C014."""
    async with place(tmp_path) as here:
        await here.start()
        here.put(row := chat("close"))
        await here.until(lambda: done(here, row))
        error = here.acks()[row.id].error
        assert error is not None and error.kind == "engine_crash" and error.retryable and "boom" in error.message
        for number in range(5):
            here.put(chat(f"say {number}"))
            await here.until(lambda number=number: len(here.texts()) == number + 1)
        assert here.texts() == ["0", "1", "2", "3", "4"]
        opened = [entry["opened"] for entry in here.heard() if "opened" in entry]
        assert len(opened) == 2 and opened[1] is not None


@pytest.mark.parametrize("verb", ["hang", "deaf"])
async def test_a_turn_without_an_end_is_stopped_at_its_limit(tmp_path: Path, verb: str) -> None:
    async with place(tmp_path, limits={"turn_seconds": 0.5}) as here:
        await here.start()
        here.put(row := chat(verb))
        await here.until(lambda: done(here, row))
        error = here.acks()[row.id].error
        assert error is not None and error.kind == "stalled" and not error.retryable and error.message_for_user
        here.put(chat("say alive"))
        await here.until(lambda: "alive" in here.texts())


async def test_a_stopped_runner_gives_back_what_it_did_not_answer(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        process = await here.start()
        here.put(row := chat("hang"))
        await here.until(here.prompts)
        assert await here.stop(process) == 0
        assert here.acks()[row.id].status is AckStatus.RELEASED
        here.again()
        await here.start()
        await here.until(lambda: len(here.prompts()) == 2)
        assert "recovery" in here.prompts()[1]


async def test_an_idle_runner_ends_by_itself(tmp_path: Path) -> None:
    """Pitfall 38."""
    async with place(tmp_path, limits={"idle_exit": 0.5}) as here:
        process = await here.start()
        assert await here.ended(process) == 0


async def test_a_runner_without_a_host_finishes_and_is_found_by_the_next_one(tmp_path: Path) -> None:
    async with place(tmp_path, limits={"poll": 0.2}) as here:
        await here.start()
        here.put(row := chat("slow 0.05 working on without anybody"))
        await here.until(here.prompts)
        assert here.bell is not None
        await here.bell.close()
        await here.until(lambda: done(here, row))
        await here.listen()
        await here.until(lambda: here.bell is not None and here.bell.connected)
        here.put(other := chat("say adopted"))
        await here.until(lambda: done(here, other))


async def test_a_replaced_runner_ends(tmp_path: Path) -> None:
    """C014: one runner a session."""
    async with place(tmp_path) as here:
        process = await here.start()
        here.put(row := chat("say one"))
        await here.until(lambda: done(here, row))
        here.again()
        assert here.bell is not None
        here.bell.ring()
        assert await here.ended(process) == 0


@pytest.mark.parametrize(("key", "value"), [("protocol", 99), ("format", 99)])
async def test_a_spec_of_another_version_is_refused_with_a_code_and_a_line(
    tmp_path: Path, key: str, value: int
) -> None:
    """C207."""
    async with place(tmp_path, listen=False) as here:
        here.folder.write_spec(replace(here.spec, **{key: value}))
        process = await here.start()
        assert await here.ended(process) == 78
        (line,) = here.stderr.decode().splitlines()
        assert key in line and "99" in line


async def test_a_provider_that_cannot_be_loaded_ends_the_message_with_a_reason(tmp_path: Path) -> None:
    async with place(tmp_path, provider="nowhere") as here:
        await here.start()
        here.put(row := chat("say x"))
        await here.until(lambda: done(here, row))
        error = here.acks()[row.id].error
        assert error is not None and error.kind == "config" and "nowhere" in error.message and error.message_for_user


async def test_before_the_first_heartbeat_only_the_runners_own_rooms_are_imported(tmp_path: Path) -> None:
    """Architecture 3; the process is small then, too."""
    code = (
        "import sys, os\n"
        "from jackfield.runner import __main__\n"
        "from jackfield.runner.heartbeat import Heartbeat\n"
        "def first(self):\n"
        "    names = sorted(n for n in sys.modules if n.split('.')[0] not in sys.stdlib_module_names)\n"
        "    rss = [l for l in open('/proc/self/status') if l.startswith('VmRSS')][0].split()[1]\n"
        "    print(rss, *names, flush=True); os._exit(0)\n"
        "Heartbeat.touch = first\n"
        f"__main__.main([{str(tmp_path / 'sessions' / 'ses')!r}])\n"
    )
    async with place(tmp_path, listen=False):
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        rss, *names = out.decode().split()
        allowed = ("jackfield.errors", "jackfield.ids", "jackfield.clock", "jackfield.points", "jackfield.models")
        rooms = (*allowed, "jackfield.mailbox", "jackfield.runner")
        strangers = [
            name
            for name in names
            if name not in ("__main__", "jackfield") and not any(name == r or name.startswith(r + ".") for r in rooms)
        ]
        # What the interpreter itself imports at start (an editable install's finder) is not the runner's.
        assert [
            name for name in strangers if name.startswith("jackfield") or "pydantic" in name or "pluggy" in name
        ] == []
        assert "jackfield.runner.agent" not in names
        assert int(rss) < 40_000


async def test_a_heart_stops_when_the_loop_is_held_up(tmp_path: Path) -> None:
    """Pitfall 37."""
    async with place(tmp_path, limits={"heartbeat": 0.1}) as here:
        await here.start()
        here.put(chat("block 2"))
        await here.until(here.prompts)
        await asyncio.sleep(0.3)
        before = here.folder.heartbeat_at()
        await asyncio.sleep(0.7)
        assert here.folder.heartbeat_at() == before
        await here.until(lambda: "unblocked" in here.texts())
        await here.until(lambda: here.folder.heartbeat_at() != before)


async def test_the_runner_needs_no_more_than_its_folder(tmp_path: Path) -> None:
    async with place(tmp_path, listen=False) as here:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "jackfield.runner", stderr=asyncio.subprocess.PIPE, env=dict(os.environ)
        )
        _, said = await process.communicate()
        assert process.returncode == 2 and b"usage" in said
        assert here.rows() == []


async def test_a_provider_with_a_bug_ends_the_turn_and_not_the_runner(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        await here.start()
        here.put(row := chat("refuse me"))
        await here.until(lambda: done(here, row))
        error = here.acks()[row.id].error
        assert error is not None and error.kind == "engine_crash" and "a bug of the provider" in error.message
        here.put(chat("say alive"))
        await here.until(lambda: "alive" in here.texts())


async def test_a_plugin_that_cannot_be_imported_is_named(tmp_path: Path) -> None:
    async with place(tmp_path, provider="broken") as here:
        process = await here.start()
        here.put(row := chat("say x"))
        await here.until(lambda: done(here, row))
        error = here.acks()[row.id].error
        assert error is not None and "jackfield_scripted_missing" in error.message
        assert await here.stop(process) == 0


async def test_wrong_settings_are_named(tmp_path: Path) -> None:
    async with place(tmp_path, settings={"inject": "sideways"}) as here:
        await here.start()
        here.put(row := chat("say x"))
        await here.until(lambda: done(here, row))
        error = here.acks()[row.id].error
        assert error is not None and "inject" in error.message and "providers.scripted" in error.message


async def test_a_damaged_note_of_its_own_does_not_keep_the_runner_from_working(tmp_path: Path) -> None:
    async with place(tmp_path) as here:
        mailbox = RunnerMailbox(here.folder, 1)
        mailbox.write(keys={"carried": "[]", "last_origin": "::", "continuation:scripted": "{}"})
        mailbox.close()
        await here.start()
        here.put(row := chat("say fine"))
        await here.until(lambda: done(here, row))
        assert here.texts() == ["fine"]


async def test_the_running_tool_is_shown_with_its_deadline(tmp_path: Path) -> None:
    """Messaging D17."""
    async with place(tmp_path, tools=("scripted",)) as here:
        await here.start()
        here.put(row := chat('call nap {"seconds": 1.5}'))
        state = await here.until(lambda: s if (s := here.host.read_state()).tool else None)
        assert state.tool == "nap" and state.tool_deadline_at - state.tool_started_at == 60_000
        await here.until(lambda: done(here, row))
        assert here.host.read_state().tool is None


async def test_a_provider_that_waits_says_until_when(tmp_path: Path) -> None:
    """C097."""
    async with place(tmp_path) as here:
        await here.start()
        here.put(row := chat("retry 1.5\nsay made it"))
        state = await here.until(lambda: s if (s := here.host.read_state()).waiting_for else None)
        assert state.waiting_until > row.at and "overloaded" in state.waiting_for
        await here.until(lambda: done(here, row))
        assert here.host.read_state().waiting_for is None and here.texts() == ["made it"]
