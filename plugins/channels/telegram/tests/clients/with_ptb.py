"""python-telegram-bot against the fake: prints what it understood as one JSON object."""

import asyncio
import json
import sys

from telegram import InlineKeyboardButton, InlineKeyboardMarkup, InputMediaDocument, Update
from telegram.error import BadRequest, ChatMigrated, InvalidToken, RetryAfter
from telegram.ext import (
    ApplicationBuilder,
    CallbackQueryHandler,
    ChatMemberHandler,
    MessageHandler,
    MessageReactionHandler,
    filters,
)


async def main(url: str, token: str) -> None:
    told: dict[str, object] = {}
    heard: list[str] = []
    done = asyncio.Event()
    app = ApplicationBuilder().token(token).base_url(f"{url}/bot").base_file_url(f"{url}/file/bot").build()

    async def on_message(update: Update, context) -> None:
        if update.edited_message is not None:
            heard.append(f"edit {update.edited_message.text}")
            return
        message = update.message
        if message.document is not None:
            data = await (await message.document.get_file()).download_as_bytearray()
            heard.append(f"file {message.document.file_name} {len(data)}")
        else:
            heard.append(f"text {message.text} in {message.chat.type} from {message.from_user.full_name}")
        if message.text == "buttons":
            row = [InlineKeyboardButton("Yes", callback_data="p:qst_1:0")]
            await message.reply_text("?", reply_markup=InlineKeyboardMarkup([row]))

    async def on_click(update: Update, context) -> None:
        heard.append(f"click {update.callback_query.data} by {update.callback_query.from_user.id}")
        await update.callback_query.answer("fine")
        await update.callback_query.edit_message_text("chosen")

    async def on_reaction(update: Update, context) -> None:
        heard.append(f"reaction {update.message_reaction.new_reaction[0].emoji}")

    async def on_member(update: Update, context) -> None:
        heard.append(f"member {update.my_chat_member.new_chat_member.status}")
        done.set()

    app.add_handler(MessageHandler(filters.ALL, on_message))
    app.add_handler(CallbackQueryHandler(on_click))
    app.add_handler(MessageReactionHandler(on_reaction))
    app.add_handler(ChatMemberHandler(on_member))
    await app.initialize()
    told["me"] = app.bot.username
    await app.start()
    await app.updater.start_polling(timeout=5, allowed_updates=Update.ALL_TYPES)
    print("polling", flush=True)
    await asyncio.wait_for(done.wait(), 30)
    await app.updater.stop()  # asks for updates once more, to confirm the last
    told["heard"] = heard

    bot = app.bot
    sent = await bot.send_message(11, "<b>bold</b> &amp; plain", parse_mode="HTML")
    told["sent"] = [sent.text, [entity.type for entity in sent.entities]]
    document = await bot.send_document(11, b"data", filename="näme.txt", caption="c")
    told["document"] = [document.document.file_name, document.document.file_size]
    album = [InputMediaDocument(b"%d" % n, filename=f"{n}.txt") for n in range(2)]
    told["album"] = len(await bot.send_media_group(11, album))
    told["typing"] = await bot.send_chat_action(11, "typing")
    told["reacted"] = await bot.set_message_reaction(11, sent.message_id, "👍")
    told["deleted"] = await bot.delete_message(11, sent.message_id)
    told["hook"] = (await bot.get_webhook_info()).url

    async def refused(call) -> str:
        try:
            await call
        except (BadRequest, RetryAfter, ChatMigrated) as problem:
            extra = getattr(problem, "new_chat_id", None) or getattr(problem, "_retry_after", None)
            extra = extra if extra is None or isinstance(extra, int) else int(extra.total_seconds())
            return f"{type(problem).__name__} {extra or problem.message}"
        return "nothing"

    told["long"] = await refused(bot.send_message(11, "x" * 4097))
    told["markup"] = await refused(bot.send_message(11, "<b>x", parse_mode="HTML"))
    told["flood"] = await refused(bot.send_message(12, "x"))
    told["moved"] = await refused(bot.send_message(-7, "x"))
    await app.stop()
    await app.shutdown()

    other = ApplicationBuilder().token("1:wrong").base_url(f"{url}/bot").build()
    try:
        await other.initialize()
    except InvalidToken:
        told["wrong"] = "unauthorized"
    print(json.dumps(told, ensure_ascii=False), flush=True)


asyncio.run(main(*sys.argv[1:]))
