"""aiogram against the fake: prints what it understood as one JSON object.  Runs in an environment of its own."""

import asyncio
import json
import sys

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import (
    TelegramBadRequest,
    TelegramConflictError,
    TelegramMigrateToChat,
    TelegramRetryAfter,
    TelegramUnauthorizedError,
)
from aiogram.methods import GetUpdates
from aiogram.types import (
    BufferedInputFile,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaDocument,
    InputRichMessage,
    ReactionTypeEmoji,
)


async def main(url: str, token: str) -> None:
    told: dict[str, object] = {}
    bot = Bot(token, session=AiohttpSession(api=TelegramAPIServer.from_base(url)))
    me = await bot.get_me()
    told["me"] = me.username

    dispatcher = Dispatcher()
    heard: list[str] = []
    done = asyncio.Event()

    async def on_message(message) -> None:
        if message.document is not None:
            data = await bot.download(message.document)
            heard.append(f"file {message.document.file_name} {len(data.read())}")
        else:
            heard.append(f"text {message.text} in {message.chat.type} from {message.from_user.full_name}")
        if message.text == "buttons":
            row = [InlineKeyboardButton(text="Yes", callback_data="p:qst_1:0")]
            await message.answer("?", reply_markup=InlineKeyboardMarkup(inline_keyboard=[row]))

    async def on_edit(message) -> None:
        heard.append(f"edit {message.text}")

    async def on_click(query) -> None:
        heard.append(f"click {query.data} by {query.from_user.id}")
        await query.answer("fine")
        await query.message.edit_text("chosen")

    async def on_reaction(change) -> None:
        heard.append(f"reaction {change.new_reaction[0].emoji}")

    async def on_member(change) -> None:
        heard.append(f"member {change.new_chat_member.status}")
        done.set()

    dispatcher.message.register(on_message)
    dispatcher.edited_message.register(on_edit)
    dispatcher.callback_query.register(on_click)
    dispatcher.message_reaction.register(on_reaction)
    dispatcher.my_chat_member.register(on_member)
    polling = asyncio.create_task(
        dispatcher.start_polling(bot, handle_signals=False, polling_timeout=5, close_bot_session=False)
    )
    print("polling", flush=True)
    await asyncio.wait_for(done.wait(), 30)
    await dispatcher.stop_polling()
    await polling
    told["heard"] = heard

    sent = await bot.send_message(11, "<b>bold</b> &amp; plain", parse_mode="HTML")
    told["sent"] = [sent.text, [entity.type for entity in sent.entities]]
    rich = await bot.send_rich_message(11, InputRichMessage(html="<h1>T</h1><table><tr><td>1</td></tr></table>"))
    told["rich"] = len(rich.rich_message.blocks)
    told["draft"] = await bot.send_rich_message_draft(11, draft_id=5, rich_message=InputRichMessage(markdown="*x*"))
    document = await bot.send_document(11, BufferedInputFile(b"data", "näme.txt"), caption="c")
    told["document"] = [document.document.file_name, document.document.file_size]
    album = [InputMediaDocument(media=BufferedInputFile(b"%d" % n, f"{n}.txt")) for n in range(2)]
    told["album"] = len(await bot.send_media_group(11, album))
    told["typing"] = await bot.send_chat_action(11, "typing")
    told["reacted"] = await bot.set_message_reaction(11, sent.message_id, [ReactionTypeEmoji(emoji="👍")])
    told["deleted"] = await bot.delete_message(11, sent.message_id)
    told["hook"] = (await bot.get_webhook_info()).url

    async def refused(call) -> str:
        try:
            await call
        except (TelegramBadRequest, TelegramRetryAfter, TelegramMigrateToChat, TelegramConflictError) as problem:
            extra = getattr(problem, "retry_after", None) or getattr(problem, "migrate_to_chat_id", None)
            return f"{type(problem).__name__} {extra or problem.message}"
        return "nothing"

    told["long"] = await refused(bot.send_message(11, "x" * 4097))
    told["markup"] = await refused(bot.send_message(11, "<b>x", parse_mode="HTML"))
    told["flood"] = await refused(bot.send_message(12, "x"))
    told["moved"] = await refused(bot.send_message(-7, "x"))
    first = asyncio.create_task(refused(bot(GetUpdates(timeout=20))))
    await asyncio.sleep(0.3)
    await bot(GetUpdates(timeout=0))
    told["conflict"] = (await first).split(":")[0]
    await bot.session.close()

    other = Bot("1:wrong", session=AiohttpSession(api=TelegramAPIServer.from_base(url)))
    try:
        await other.get_me()
    except TelegramUnauthorizedError:
        told["wrong"] = "unauthorized"
    await other.session.close()
    print(json.dumps(told, ensure_ascii=False), flush=True)


asyncio.run(main(*sys.argv[1:]))
