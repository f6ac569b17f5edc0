"""The host's half: what a person is asked, with everything that will be done, and what is done once they said yes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jackfield.api import ActionContext, ActionHandler, ApprovalField, ApprovalKind, Packages
from jackfield.errors import MalformedData
from jackfield.ids import RequestId

__all__ = ["ACTIONS", "KINDS", "package_fields", "server_fields"]

_MANAGERS = ("pip", "npm", "apt")
_REASON = 2000


async def ask_packages(context: ActionContext, request_id: str, arguments: dict[str, Any]) -> Any:
    wanted = {manager: arguments.get(manager) or [] for manager in _MANAGERS}
    packages = await context.host.workshop.check_packages(context.agent_group.id, wanted)
    payload = {manager: list(getattr(packages, manager)) for manager in _MANAGERS}
    return await _ask(context, request_id, "install_packages", payload, package_fields(packages), arguments)


async def ask_server(context: ActionContext, request_id: str, arguments: dict[str, Any]) -> Any:
    name, settings = arguments.get("name"), arguments.get("settings")
    if not isinstance(settings, dict):
        raise MalformedData("settings must be a table")
    checked = await context.host.workshop.check_server(context.agent_group.id, name, settings)
    payload = {"name": name, "settings": checked}
    fields = server_fields(str(name), checked)
    files = await context.host.workshop.server_files(context.agent_group.id, checked)
    return await _ask(context, request_id, "add_mcp_server", payload, fields, arguments, files)


async def ask_rebuild(context: ActionContext, request_id: str, arguments: dict[str, Any]) -> Any:
    fields = [ApprovalField(label="What", value="install all recorded packages anew, and start the agent again")]
    return await _ask(context, request_id, "request_rebuild", {}, fields, arguments)


async def _ask(
    context: ActionContext,
    request_id: str,
    kind: str,
    payload: dict[str, Any],
    fields: list[ApprovalField],
    arguments: Mapping[str, Any],
    files: Sequence[Path] = (),
) -> Any:
    reason = arguments.get("reason")
    ticket = await context.host.approvals.request(
        context,
        RequestId(request_id),
        kind,
        payload,
        fields=fields,
        reason=reason[:_REASON] if isinstance(reason, str) else "",
        files=files,
    )
    return {"approval": ticket.id, "state": ticket.state.value}


def package_fields(packages: Packages) -> list[ApprovalField]:
    """Every name, one a line."""
    return [
        ApprovalField(label=manager, value="\n".join(getattr(packages, manager)))
        for manager in _MANAGERS
        if getattr(packages, manager)
    ]


def server_fields(name: str, settings: Mapping[str, Any]) -> list[ApprovalField]:
    """Every setting.  Arguments are shown as JSON, so that it is plain where one ends (pitfall 55)."""
    fields = [ApprovalField(label="name", value=name)]
    for key, value in settings.items():
        if isinstance(value, dict):
            fields += [ApprovalField(label=f"{key} {one}", value=str(text)) for one, text in value.items()]
        elif isinstance(value, str):
            fields.append(ApprovalField(label=key, value=value))
        else:
            fields.append(ApprovalField(label=key, value=json.dumps(value, ensure_ascii=False)))
    return fields


async def install(context: ActionContext, payload: dict[str, Any]) -> str:
    workshop, group = context.host.workshop, context.agent_group.id
    return await workshop.install(group, await workshop.check_packages(group, payload), asked_in=context.session.id)


async def add_server(context: ActionContext, payload: dict[str, Any]) -> str:
    workshop, group = context.host.workshop, context.agent_group.id
    checked = await workshop.check_server(group, payload["name"], payload["settings"])
    return await workshop.add_server(
        group, payload["name"], checked, approved=context.files, asked_in=context.session.id
    )


async def rebuild(context: ActionContext, payload: dict[str, Any]) -> str:
    return await context.host.workshop.rebuild(context.agent_group.id, asked_in=context.session.id)


ACTIONS = (
    ActionHandler(name="install_packages", handle=ask_packages),
    ActionHandler(name="add_mcp_server", handle=ask_server),
    ActionHandler(name="request_rebuild", handle=ask_rebuild),
)
KINDS = (
    # Done again after a host's end in the middle, each leads to the same state.
    ApprovalKind(name="install_packages", title="Install packages", apply=install, idempotent=True),
    ApprovalKind(name="add_mcp_server", title="Add an MCP server", apply=add_server, idempotent=True),
    ApprovalKind(name="request_rebuild", title="Install everything anew", apply=rebuild, idempotent=True),
)
