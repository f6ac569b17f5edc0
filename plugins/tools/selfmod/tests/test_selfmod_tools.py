"""What agents ask for, what people are shown of it, and what a yes does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jackfield.api import ActionContext, ApprovalState
from jackfield.clock import UnixMs
from jackfield.errors import MalformedData
from jackfield.ids import AgentGroupId, SessionId
from jackfield.models import AgentGroup, Session, SessionMode, SessionStatus
from jackfield.models.packages import Packages
from jackfield.testing import HostRecorder, ToolRecorder
from jackfield_tools_selfmod.requests import ACTIONS, KINDS, server_fields
from jackfield_tools_selfmod.tools import add_mcp_server, install_packages

GROUP = AgentGroup(id=AgentGroupId("ag_0123456789abcdefghjk"), name="Andy", folder="andy", created_at=UnixMs(0))


def context(host: HostRecorder, session: Session) -> ActionContext:
    return ActionContext(session=session, agent_group=GROUP, host=host)


@pytest.fixture
def host() -> HostRecorder:
    return HostRecorder(groups=[GROUP])


@pytest.fixture
def session() -> Session:
    return Session(
        id=SessionId("ses_0123456789abcdefghjk"), agent_group_id=GROUP.id, key="k", mode=SessionMode.SHARED,
        messaging_group_id=None, thread_id=None, status=SessionStatus.ACTIVE, epoch=0, parked_until=None,
        parked_reason=None, created_at=UnixMs(0), last_active_at=UnixMs(0),
    )  # fmt: skip


async def asked(host: HostRecorder, session: Session, action: str, **arguments: Any) -> Any:
    handler = next(one for one in ACTIONS if one.name == action)
    return await handler.handle(context(host, session), "req_0123456789abcdefghjk", arguments)


async def test_every_name_is_shown_and_exactly_that_is_installed(host: HostRecorder, session: Session) -> None:
    answer = await asked(host, session, "install_packages", pip=["six", "attrs==1.0"], npm=["@a/b"], reason="to test")
    assert answer["state"] == "pending"
    (request,) = host.approvals.asked
    assert [(field.label, field.value) for field in request.fields] == [("pip", "six\nattrs==1.0"), ("npm", "@a/b")]
    assert request.reason == "to test"
    kind = next(one for one in KINDS if one.name == request.kind)
    assert kind.mode == "always" and kind.idempotent
    await kind.apply(context(host, session), request.payload)
    assert host.workshop.installed == [Packages(pip=("six", "attrs==1.0"), npm=("@a/b",))]


@pytest.mark.parametrize(
    "name",
    [
        "jq; rm -rf /data", "$(id)", "--pre", "git+https://e.example/x", "../local", "ＪＱ", "lib foo", "a" * 300,
        "-r", "x==", "a==1.2 --pre", "./x", "x@1", "x[y]", "", "a\n", "a\x00",
    ],
)  # fmt: skip
async def test_what_is_no_name_is_refused_before_anybody_is_asked_and_again_when_it_is_done(
    name: str, host: HostRecorder, session: Session
) -> None:
    """C176"""
    for manager in ("pip", "npm", "apt"):
        with pytest.raises(MalformedData, match="no name of a package"):
            await asked(host, session, "install_packages", **{manager: ["fine", name]})
        with pytest.raises(MalformedData, match="no name of a package"):
            await KINDS[0].apply(context(host, session), {manager: [name]})
    assert host.approvals.asked == [] and host.workshop.installed == []


async def test_an_exact_version_is_for_pip_alone_and_there_are_twenty_at_most(
    host: HostRecorder, session: Session
) -> None:
    """C176: `valid-name==1.2` names one version, which a person can judge better than a name alone."""
    await asked(host, session, "install_packages", pip=["valid-name==1.2"])
    for manager in ("npm", "apt"):
        with pytest.raises(MalformedData, match="no name of a package"):
            await asked(host, session, "install_packages", **{manager: ["valid-name==1.2"]})
    with pytest.raises(MalformedData, match="at most 20 packages"):
        await asked(
            host, session, "install_packages", pip=[f"p{n}" for n in range(11)], npm=[f"n{n}" for n in range(10)]
        )
    with pytest.raises(MalformedData, match="at least one"):
        await asked(host, session, "install_packages", pip=[])


async def test_every_setting_of_a_server_is_shown(host: HostRecorder, session: Session) -> None:
    """Pitfall 55"""
    settings = {
        "command": "npx", "args": ["-y", "a b", "c"], "env": {"KEY": "secret:FILES", "MODE": "rw"}, "timeout": 5.0,
    }  # fmt: skip
    await asked(host, session, "add_mcp_server", name="files", settings=settings)
    (request,) = host.approvals.asked
    assert [(field.label, field.value) for field in request.fields] == [
        ("name", "files"), ("command", "npx"), ("args", '["-y", "a b", "c"]'), ("env KEY", "secret:FILES"),
        ("env MODE", "rw"), ("timeout", "5.0"),
    ]  # fmt: skip
    await KINDS[1].apply(context(host, session), request.payload)
    assert host.workshop.servers == {"files": settings}
    assert len(server_fields("x", {"url": "https://e.example", "headers": {"A": "b"}})) == 3


async def test_a_rebuild_is_asked_for_and_done(host: HostRecorder, session: Session) -> None:
    host.approvals.state = ApprovalState.APPROVED
    assert (await asked(host, session, "request_rebuild", reason="broken"))["state"] == "approved"
    await KINDS[2].apply(context(host, session), host.approvals.asked[0].payload)
    assert host.workshop.rebuilt == 1


async def test_the_agent_is_told_not_to_wait(tmp_path: Path) -> None:
    answers = {
        "install_packages": {"approval": "ap_1", "state": "pending"},
        "add_mcp_server": {"approval": "ap_2", "state": "approved"},
    }
    told = ToolRecorder(tmp_path, answers=answers)
    assert "don't wait" in str(await install_packages.function(told, reason="r", pip=["six"]))
    assert "being done" in str(await add_mcp_server.function(told, name="x", reason="r", command="y"))
