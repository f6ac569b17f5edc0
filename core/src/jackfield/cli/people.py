"""`jackfield owner`, `admin`, `member` and `user`: who may talk to whom.

USER is `<channel type>:<handle>`, or an alias of exactly one known person, like `telegram:@robin`.
"""

from __future__ import annotations

import click

from jackfield.cli import output
from jackfield.cli.lazy import Group, json_option
from jackfield.cli.printable import line
from jackfield.cli.state import Json, call, emit, say

__all__ = ["admin", "member", "owner", "user"]


@click.group(cls=Group)
def owner() -> None:
    """Owners may do everything, everywhere."""


@owner.command("list")
@json_option
def list_owners() -> None:
    """List the owners."""
    found = call("owner.list")
    if emit(found):
        return
    rows = [{**one, "since": output.ago(one.get("granted_at"))} for one in found]
    output.table(rows, {"user": "USER", "since": "SINCE"}, empty="There is no owner.  `jackfield owner claim`")


@owner.command("claim")
@json_option
def claim() -> None:
    """Become an owner from a chat, with a code that is shown once.

    Whoever sends `/claim CODE` to the bot within ten minutes, in whatever chat, is an owner then.  A new code takes the
    place of the one before.
    """
    result = call("owner.claim")
    if emit(result):
        return
    say(f"/claim {result['code']}", bold=True)
    say("Send this to the bot from your own account within ten minutes, best in a direct chat, where nobody else")
    say("reads it.  It works once, and makes that account an owner.")
    if not result["running"]:
        say("No host runs, so nobody listens yet: `jackfield up`", fg="yellow")


@owner.command("add")
@click.argument("user")
@click.option("--name", help="What the person is called.")
@json_option
def add_owner(user: str, name: str | None) -> None:
    """Make somebody an owner."""
    result = call("owner.add", user=user, name=name)
    if emit(result):
        return
    say(f"{line(_id(result, user))} {'is an owner' if result.get('changed', True) else 'was an owner already'}")


@owner.command("remove")
@click.argument("user")
@json_option
def remove_owner(user: str) -> None:
    """Take it back.  The last owner can't be removed."""
    result = call("owner.remove", user=user)
    if emit(result):
        return
    say(f"{line(user)} is no owner any more")


@click.group(cls=Group)
def admin() -> None:
    """Admins may use the commands of an agent group that change it, such as /clear, and stop anybody's turn."""


@admin.command("list")
@click.argument("group", required=False)
@json_option
def list_admins(group: str | None) -> None:
    """List the admins; with GROUP, those that count there."""
    found = call("admin.list", group=group)
    if emit(found):
        return
    rows = [{**one, "group": one["group"] or "(all)", "since": output.ago(one.get("granted_at"))} for one in found]
    output.table(rows, {"user": "USER", "group": "GROUP", "since": "SINCE"}, empty="There is no admin.")


@admin.command("add")
@click.argument("user")
@click.argument("group", required=False)
@click.option("--name", help="What the person is called.")
@json_option
def add_admin(user: str, group: str | None, name: str | None) -> None:
    """Make somebody an admin of GROUP, or of all groups."""
    result = call("admin.add", user=user, group=group, name=name)
    if emit(result):
        return
    said = "is an admin" if result.get("changed", True) else "was an admin already"
    say(f"{line(user)} {said} {_of(result['group'])}")


@admin.command("remove")
@click.argument("user")
@click.argument("group", required=False)
@json_option
def remove_admin(user: str, group: str | None) -> None:
    """Take it back: of GROUP, or of all groups."""
    result = call("admin.remove", user=user, group=group)
    if emit(result):
        return
    say(f"{line(user)} is no admin {_of(result['group'])} any more")


def _of(group: str | None) -> str:
    return "of all agent groups" if group is None else f"of {line(group)}"


@click.group(cls=Group)
def member() -> None:
    """Members may talk to an agent group."""


@member.command("list")
@click.argument("group", required=False)
@json_option
def list_members(group: str | None) -> None:
    """List the members, of one group or of all."""
    found = call("member.list", group=group)
    if emit(found):
        return
    rows = [{**one, "since": output.ago(one.get("added_at"))} for one in found]
    output.table(rows, {"user": "USER", "group": "GROUP", "since": "SINCE"}, empty="There is no member.")


@member.command("add")
@click.argument("user")
@click.argument("group")
@click.option("--name", help="What the person is called.")
@json_option
def add_member(user: str, group: str, name: str | None) -> None:
    """Let somebody talk to an agent group."""
    result = call("member.add", user=user, group=group, name=name)
    if emit(result):
        return
    said = "is a member" if result.get("changed", True) else "was a member already"
    say(f"{line(_id(result, user))} {said} of {line(str(result.get('group', group)))}")


@member.command("remove")
@click.argument("user")
@click.argument("group")
@json_option
def remove_member(user: str, group: str) -> None:
    """Take it back."""
    result = call("member.remove", user=user, group=group)
    if emit(result):
        return
    say(f"{line(user)} is no member of {line(group)} any more")


@click.group(cls=Group)
def user() -> None:
    """Everybody who was ever seen."""


@user.command("list")
@json_option
def list_users() -> None:
    """List the people."""
    found = call("user.list")
    if emit(found):
        return
    rows = [
        {**one, "role": [role["role"] for role in one.get("roles", [])], "seen": output.ago(one.get("created_at"))}
        for one in found
    ]
    columns = {"id": "USER", "name": "NAME", "role": "ROLES", "member_of": "MEMBER OF", "seen": "FIRST SEEN"}
    output.table(rows, columns, empty="Nobody was seen yet.")


@user.command("show")
@click.argument("user")
@json_option
def show_user(user: str) -> None:
    """Show somebody: what they may do, other names they were seen under, their time zone."""
    result = call("user.show", user=user)
    if emit(result):
        return
    roles = [role["role"] + (f" of {role['group']}" if role["group"] else "") for role in result["roles"]]
    output.facts(
        {
            "user": result["id"],
            "name": result["name"],
            "roles": roles,
            "member of": result["member_of"],
            "aliases": result["aliases"],
            "timezone": result["timezone"] or "that of the agent",
            "first seen": output.ago(result["created_at"]),
        }
    )


@user.command("timezone")
@click.argument("user")
@click.argument("zone")
@json_option
def set_timezone(user: str, zone: str) -> None:
    """Set the time zone in which somebody is told times: an IANA name, or `-` for that of the agent."""
    result = call("user.timezone", user=user, timezone=None if zone == "-" else zone)
    if emit(result):
        return
    say(f"{line(result['id'])} is told times in {result['timezone'] or 'the zone of the agent'}")


@user.command("denied")
@json_option
def denied() -> None:
    """List the strangers who were denied and the chats that are ignored, while that is remembered."""
    result = call("user.denied")
    if emit(result):
        return
    rows = [{**one, "until": output.ago(one["until"])} for one in (*result["senders"], *result["chats"])]
    columns = {"chat": "CHAT", "name": "NAME", "user": "USER", "by": "BY", "until": "UNTIL"}
    output.table(rows, columns, empty="Nobody is denied.")


@user.command("forgive")
@click.argument("chat")
@click.argument("user", required=False)
@json_option
def forgive(chat: str, user: str | None) -> None:
    """Take back what was denied in CHAT: of USER, or all of it; at the next message somebody is asked again."""
    result = call("user.forgive", chat=chat, user=user)
    if emit(result):
        return
    say(
        f"{result['forgiven']} taken back in {line(result['chat'])}"
        if result["forgiven"]
        else "nothing was denied there"
    )


def _id(result: Json, asked: str) -> str:
    """The user that an alias stood for."""
    return str(result.get("user", asked)) if isinstance(result, dict) else asked
