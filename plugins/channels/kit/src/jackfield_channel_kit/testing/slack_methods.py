"""What Slack's methods do, and what they refuse."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from typing import Any

from jackfield_channel_kit.emoji import NAMES
from jackfield_channel_kit.testing.platform import Recorded, Reply

__all__ = ["Refusal", "SlackMethods", "problem_of"]

_SCOPES = (
    "app_mentions:read", "channels:history", "channels:read", "chat:write", "files:read", "files:write",
    "groups:history", "groups:read", "im:history", "im:read", "im:write", "mpim:history", "mpim:read",
    "reactions:read", "reactions:write", "users:read",
)  # fmt: skip


class Refusal(Exception):
    """`ok: false` with this error."""

    def __init__(self, code: str, **more: Any) -> None:
        super().__init__(code)
        self.code = code
        self.more = more


class SlackMethods:
    """The workspace's state and the methods over it; `SlackFake` serves them."""

    url: str
    team: str
    bot_user: str
    bot_id: str
    enterprise: str | None
    bot_token: str

    def prepare_state(self) -> None:
        self.messages: dict[str, list[dict[str, Any]]] = {}
        """By conversation, oldest first; answers in threads among them."""
        self.hidden: dict[str, dict[str, Any]] = {}
        """Messages that one user sees, by ts."""
        self.users: dict[str, dict[str, Any]] = {
            "U00000ANN": {"name": "ann", "profile": {"display_name": "Ann", "real_name": "Ann Smith"}},
            self.bot_user: {"name": "jackfield", "is_bot": True, "profile": {"real_name": "Jackfield"}},
        }
        self.conversations: dict[str, dict[str, Any]] = {}
        """More about conversations, such as a name; any id is one all the same, unless it is in `missing`."""
        self.missing: set[str] = set()
        self.files: dict[str, dict[str, Any]] = {}
        self.contents: dict[str, bytes] = {}
        self.reactions: set[tuple[str, str, str]] = set()
        self.emoji = {*NAMES.values(), "party_parrot"}
        """The names that may be reacted with: ours, and one of the workspace's own."""
        self.scopes: list[str] = list(_SCOPES)
        self.revoked = False
        self.streams = True
        """Whether the workspace has streaming."""
        self.share_delay = 0
        """So many looks at a new file don't show yet where it was shared."""
        self._counter = itertools.count(1)

    def see(self, kind: str, channel: str, ts: str, message: Mapping[str, Any]) -> None:
        raise NotImplementedError

    def new_ts(self) -> str:
        return f"{int(time.time())}.{next(self._counter):06}"

    def find(self, channel: str, ts: str) -> dict[str, Any] | None:
        return next((one for one in self.messages.get(channel, ()) if one["ts"] == ts), None)

    @staticmethod
    def channel_type(channel: str) -> str:
        return {"D": "im", "G": "group"}.get(channel[0], "channel")

    def add_file(self, name: str, data: bytes, **more: Any) -> dict[str, Any]:
        """A file that somebody uploaded, as it stands in a message's `files`."""
        file_id = f"F{next(self._counter):08}"
        url = f"{self.url}/files/{file_id}/{name}"
        file = {"id": file_id, "name": name, "title": name, "size": len(data), "mode": "hosted", "shares": {}}
        file |= {"mimetype": "application/octet-stream", "url_private": url, "url_private_download": url, **more}
        self.files[file_id] = file
        self.contents[file_id] = data
        return file

    async def upload(self, request: Recorded) -> Reply:
        """The second step of an upload; it wants no token."""
        self.contents[request.params["file"]] = request.body
        return Reply(200, f"OK - {len(request.body)}")

    async def file_bytes(self, request: Recorded) -> Reply:
        """A file, or a page to log in for who has no token."""
        if request.headers.get("authorization") != f"Bearer {self.bot_token}":
            return Reply(200, b"<!DOCTYPE html><html><body>Sign in</body></html>", {"content-type": "text/html"})
        return Reply(200, self.contents[request.params["file"]], {"content-type": "application/octet-stream"})

    async def response(self, request: Recorded) -> Reply:
        """An answer at a `response_url`."""
        self.see("response", "", request.params["ts"], request.json())
        return Reply(200, "ok")

    # ---- methods

    def _api_test(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    def _auth_test(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        who = {"user_id": self.bot_user, "bot_id": self.bot_id, "team_id": self.team, "team": "Fake", "user": "bot"}
        return who | ({"enterprise_id": self.enterprise} if self.enterprise else {})

    def _users_info(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        found = self.users.get(arguments["user"])
        if found is None:
            raise Refusal("user_not_found")
        return {"user": {"id": arguments["user"], **found}}

    def _conversations_info(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._channel(arguments)
        return {"channel": {"id": channel, "is_im": channel[0] == "D", **self.conversations.get(channel, {})}}

    def _conversations_open(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        user = str(arguments.get("users"))
        if user not in self.users:
            raise Refusal("user_not_found")
        return {"channel": {"id": f"D{user[1:]}"}}

    def _users_conversations(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        ids = sorted({*self.messages, *self.conversations})
        start, size = int(arguments.get("cursor") or 0), int(arguments.get("limit", 100))
        following = str(start + size) if start + size < len(ids) else ""
        page = [{"id": one, **self.conversations.get(one, {})} for one in ids[start : start + size]]
        return {"channels": page, "response_metadata": {"next_cursor": following}}

    def _conversations_history(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._channel(arguments)
        found = [one for one in self.messages.get(channel, ()) if one.get("thread_ts") in (None, one["ts"])]
        oldest = arguments.get("oldest")
        found = [one for one in found if oldest is None or one["ts"] > oldest]
        found = [one | self._replies_of(channel, one["ts"]) for one in found]
        return {"messages": list(reversed(found))[: int(arguments.get("limit", 100))]}

    def _conversations_replies(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        root = arguments["ts"]
        found = [
            one for one in self.messages.get(self._channel(arguments), ()) if root in (one["ts"], one.get("thread_ts"))
        ]
        oldest = arguments.get("oldest") or ""
        found = [one for one in found if one["ts"] == root or one["ts"] > oldest]
        start, size = int(arguments.get("cursor") or 0), int(arguments.get("limit", 100))
        following = str(start + size) if start + size < len(found) else ""
        return {"messages": found[start : start + size], "response_metadata": {"next_cursor": following}}

    def _chat_postMessage(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        message = self._posted(arguments)
        self.messages.setdefault(message["channel"], []).append(message)
        self.see("message", message["channel"], message["ts"], message)
        return {"channel": message["channel"], "ts": message["ts"], "message": message}

    def _chat_postEphemeral(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if arguments.get("user") not in self.users:
            raise Refusal("user_not_in_channel")
        message = self._posted(arguments)
        self.hidden[message["ts"]] = message
        self.see("ephemeral", message["channel"], message["ts"], {**message, "for": arguments["user"]})
        return {"message_ts": message["ts"]}

    def _chat_update(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        message = self._own(arguments)
        if message.get("streaming"):
            raise Refusal("streaming_state_conflict")
        content = self._content(arguments)
        if "markdown_text" in content:
            message.pop("blocks", None)
        message.update(content)
        self.see("update", message["channel"], message["ts"], message)
        return {"channel": message["channel"], "ts": message["ts"], "text": message["text"]}

    def _chat_delete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        message = self._own(arguments)
        self.messages[message["channel"]].remove(message)
        self.see("delete", message["channel"], message["ts"], message)
        return {"channel": message["channel"], "ts": message["ts"]}

    def _chat_startStream(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._channel(arguments)
        if not self.streams:
            raise Refusal("channel_type_not_supported")
        if not arguments.get("thread_ts"):
            raise Refusal("invalid_arguments")
        if channel[0] != "D" and not (arguments.get("recipient_user_id") and arguments.get("recipient_team_id")):
            raise Refusal("missing_recipient_user_id")
        message = self._posted({"channel": channel, "thread_ts": arguments["thread_ts"], "markdown_text": ""})
        self._append(message, arguments)
        message["streaming"] = True
        self.messages.setdefault(channel, []).append(message)
        self.see("message", channel, message["ts"], message)
        return {"channel": channel, "ts": message["ts"]}

    def _chat_appendStream(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        message = self._streaming(arguments)
        self._append(message, arguments)
        self.see("update", message["channel"], message["ts"], message)
        return {"channel": message["channel"], "ts": message["ts"]}

    def _chat_stopStream(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        message = self._streaming(arguments)
        self._append(message, arguments)
        del message["streaming"]
        self.see("update", message["channel"], message["ts"], message)
        return {"channel": message["channel"], "ts": message["ts"], "message": message}

    def _reactions_add(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        key = self._reacted(arguments)
        if key in self.reactions:
            raise Refusal("already_reacted")
        self.reactions.add(key)
        self.see("reaction", key[0], key[1], {"name": key[2], "on": True})
        return {}

    def _reactions_remove(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        key = self._reacted(arguments)
        if key not in self.reactions:
            raise Refusal("no_reaction")
        self.reactions.remove(key)
        self.see("reaction", key[0], key[1], {"name": key[2], "on": False})
        return {}

    def _assistant_threads_setStatus(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if not arguments.get("thread_ts") or not arguments.get("channel_id"):
            raise Refusal("invalid_arguments")
        self.see("status", arguments["channel_id"], arguments["thread_ts"], {"status": arguments["status"]})
        return {}

    def _files_getUploadURLExternal(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if int(arguments.get("length") or 0) <= 0 or not arguments.get("filename"):
            raise Refusal("invalid_arguments")
        file = self.add_file(arguments["filename"], b"")
        file["size"] = int(arguments["length"])
        return {"upload_url": f"{self.url}/upload/{file['id']}", "file_id": file["id"]}

    def _files_completeUploadExternal(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        files = [self.files.get(one["id"]) for one in arguments["files"]]
        if any(file is None or len(self.contents[file["id"]]) != file["size"] for file in files):
            raise Refusal("file_not_found")
        channel = self._channel({"channel": arguments.get("channel_id")})
        message = self._message(channel, arguments.get("thread_ts"), {"text": arguments.get("initial_comment") or ""})
        message |= {"subtype": "file_share", "files": files}
        self.messages.setdefault(channel, []).append(message)
        for file in files:
            assert file is not None
            where = "public" if channel[0] == "C" else "private"
            file["shares"] = {where: {channel: [{"ts": message["ts"]}]}}
        self.see("message", channel, message["ts"], message)
        return {"files": [{"id": file["id"], "title": file["title"]} for file in files if file is not None]}

    def _files_info(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        file = self.files.get(arguments["file"])
        if file is None:
            raise Refusal("file_not_found")
        if self.share_delay > 0:
            self.share_delay -= 1
            return {"file": {**file, "shares": {}}}
        return {"file": file}

    def _files_delete(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self.files.pop(arguments["file"], None) is None:
            raise Refusal("file_not_found")
        return {}

    # ---- parts of them

    def _replies_of(self, channel: str, root: str) -> dict[str, Any]:
        """What the history tells of a thread."""
        times = [one["ts"] for one in self.messages.get(channel, ()) if one.get("thread_ts") == root != one["ts"]]
        return {"thread_ts": root, "reply_count": len(times), "latest_reply": max(times)} if times else {}

    def _channel(self, arguments: Mapping[str, Any]) -> str:
        channel = arguments.get("channel")
        if not isinstance(channel, str) or channel in self.missing or channel[:1] not in "CGD" or not channel:
            raise Refusal("channel_not_found")
        return channel

    def _posted(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        channel = self._channel(arguments)
        return self._message(channel, arguments.get("thread_ts"), self._content(arguments))

    def _message(self, channel: str, thread: str | None, content: Mapping[str, Any]) -> dict[str, Any]:
        message = {"type": "message", "user": self.bot_user, "bot_id": self.bot_id, "team": self.team}
        message |= {"channel": channel, "ts": self.new_ts(), **content}
        return message | ({"thread_ts": thread} if thread else {})

    def _content(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The text and blocks of a message, as Slack keeps them; the checks are Slack's."""
        markdown, text, blocks = (arguments.get(name) for name in ("markdown_text", "text", "blocks"))
        if markdown is not None:
            if text is not None or blocks is not None:
                raise Refusal("markdown_text_conflict")
            if len(markdown) > 12_000:
                raise Refusal("msg_too_long")
            return {"markdown_text": markdown, "text": markdown}
        if not text and not blocks:
            raise Refusal("no_text")
        if len(text or "") > 40_000:
            raise Refusal("msg_too_long")
        problem = problem_of(blocks or [])
        if problem is not None:
            raise Refusal("invalid_blocks", errors=[problem])
        return {"text": text or "", "blocks": list(blocks or []), "markdown_text": None}

    def _own(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        message = self.find(self._channel(arguments), str(arguments.get("ts")))
        if message is None:
            raise Refusal("message_not_found")
        if message.get("user") != self.bot_user:
            raise Refusal("cant_update_message")
        return message

    def _streaming(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        message = self._own(arguments)
        if not message.get("streaming"):
            raise Refusal("message_not_in_streaming_state")
        return message

    @staticmethod
    def _append(message: dict[str, Any], arguments: Mapping[str, Any]) -> None:
        chunks = [one for one in arguments.get("chunks") or () if one["type"] == "markdown_text"]
        more = (arguments.get("markdown_text") or "") + "".join(one["text"] for one in chunks)
        if len(more) > 12_000:
            raise Refusal("msg_too_long")
        message["text"] = message["markdown_text"] = message["markdown_text"] + more

    def _reacted(self, arguments: Mapping[str, Any]) -> tuple[str, str, str]:
        channel, ts = self._channel(arguments), str(arguments.get("timestamp"))
        if self.find(channel, ts) is None:
            raise Refusal("message_not_found")
        name = str(arguments["name"])
        if name.partition("::")[0] not in self.emoji:
            raise Refusal("invalid_name")
        return channel, ts, name


def problem_of(blocks: list[dict[str, Any]]) -> str | None:
    """Which of Block Kit's limits is not kept."""
    if len(blocks) > 50:
        return "no more than 50 items allowed"
    for at, block in enumerate(blocks):
        where = f"[json-pointer:/blocks/{at}]"
        match block.get("type"):
            case "section":
                texts = [block["text"]] if "text" in block else []
                if any(not 0 < len(text["text"]) <= 3000 for text in texts):
                    return f"must be less than 3001 characters {where}"
                fields = block.get("fields", [])
                if len(fields) > 10 or any(not 0 < len(one["text"]) <= 2000 for one in fields):
                    return f"fields {where}"
                if not texts and not fields:
                    return f"text or fields {where}"
            case "header":
                if not 0 < len(block["text"]["text"]) <= 150 or block["text"]["type"] != "plain_text":
                    return f"header {where}"
            case "actions":
                elements = block["elements"]
                ids = [one["action_id"] for one in elements]
                if not 0 < len(elements) <= 25 or len(set(ids)) != len(ids):
                    return f"elements {where}"
                for one in elements:
                    if not 0 < len(one["text"]["text"]) <= 75 or len(one.get("value", "")) > 2000:
                        return f"button {where}"
                    if one.get("style", "primary") not in ("primary", "danger"):
                        return f"style {where}"
            case "image":
                if not block.get("alt_text") or len(block["image_url"]) > 3000:
                    return f"image {where}"
            case "divider" | "context" | "markdown":
                pass
            case _:
                return f"unsupported type {where}"
    return None
