"""Emoji by Slack's names: reactions are made and told by name.  The common ones; others pass as `:name:`."""

from __future__ import annotations

import re

__all__ = ["character", "name_of"]

_NAMES = {
    "👍": "+1", "👎": "-1", "👌": "ok_hand", "👏": "clap", "🙌": "raised_hands", "🙏": "pray", "👋": "wave",
    "💪": "muscle", "🤝": "handshake", "👊": "facepunch", "✊": "fist", "✌": "v", "🤞": "crossed_fingers",
    "🤘": "the_horns", "👈": "point_left", "👉": "point_right", "👆": "point_up_2", "👇": "point_down",
    "☝": "point_up", "✋": "hand", "🖐": "raised_hand_with_fingers_splayed", "🖖": "spock-hand", "✍": "writing_hand",
    "👀": "eyes", "🧠": "brain", "❤": "heart", "🧡": "orange_heart", "💛": "yellow_heart", "💚": "green_heart",
    "💙": "blue_heart", "💜": "purple_heart", "🖤": "black_heart", "🤍": "white_heart", "💔": "broken_heart",
    "💯": "100", "💥": "boom", "💡": "bulb", "💬": "speech_balloon", "💭": "thought_balloon", "💤": "zzz",
    "💩": "hankey", "💀": "skull", "👻": "ghost", "🤖": "robot_face", "👽": "alien", "😀": "grinning", "😃": "smiley",
    "😄": "smile", "😁": "grin", "😆": "laughing", "😅": "sweat_smile", "🤣": "rolling_on_the_floor_laughing",
    "😂": "joy", "🙂": "slightly_smiling_face", "🙃": "upside_down_face", "😉": "wink", "😊": "blush",
    "😇": "innocent", "🥰": "smiling_face_with_3_hearts", "😍": "heart_eyes", "🤩": "star-struck",
    "😘": "kissing_heart", "😋": "yum", "😛": "stuck_out_tongue", "😜": "stuck_out_tongue_winking_eye",
    "🤔": "thinking_face", "🤗": "hugging_face", "🤫": "shushing_face", "🤐": "zipper_mouth_face",
    "😐": "neutral_face", "😑": "expressionless", "😶": "no_mouth", "😏": "smirk", "😒": "unamused",
    "🙄": "face_with_rolling_eyes", "😬": "grimacing", "😌": "relieved", "😔": "pensive", "😪": "sleepy",
    "😴": "sleeping", "😷": "mask", "🤒": "face_with_thermometer", "🤯": "exploding_head", "😎": "sunglasses",
    "🤓": "nerd_face", "😕": "confused", "😟": "worried", "🙁": "slightly_frowning_face", "😮": "open_mouth",
    "😲": "astonished", "😳": "flushed", "🥺": "pleading_face", "😢": "cry", "😭": "sob", "😱": "scream",
    "😞": "disappointed", "😓": "sweat", "😩": "weary", "😫": "tired_face", "🥱": "yawning_face", "😤": "triumph",
    "😡": "rage", "😠": "angry", "🤬": "face_with_symbols_on_mouth", "😈": "smiling_imp", "🤷": "shrug",
    "🤦": "face_palm", "🙋": "raising_hand", "🎉": "tada", "🎊": "confetti_ball", "🎁": "gift", "🎂": "birthday",
    "🏆": "trophy", "🥇": "first_place_medal", "🎯": "dart", "🚀": "rocket", "🔥": "fire", "✨": "sparkles",
    "⭐": "star", "🌟": "star2", "⚡": "zap", "☀": "sunny", "🌈": "rainbow", "❄": "snowflake", "🌱": "seedling",
    "🌹": "rose", "🍀": "four_leaf_clover", "🍕": "pizza", "🍺": "beer", "🍻": "beers", "☕": "coffee", "🍪": "cookie",
    "🐛": "bug", "🐞": "beetle", "🐍": "snake", "🦄": "unicorn_face", "🐙": "octopus", "🐢": "turtle", "🦀": "crab",
    "✅": "white_check_mark", "☑": "ballot_box_with_check", "✔": "heavy_check_mark", "❌": "x", "❎":
    "negative_squared_cross_mark", "❗": "exclamation", "❓": "question", "‼": "bangbang", "⚠": "warning",
    "🚫": "no_entry_sign", "⛔": "no_entry", "🛑": "octagonal_sign", "🚨": "rotating_light", "🔴": "red_circle",
    "🟢": "large_green_circle", "🟡": "large_yellow_circle", "🔵": "large_blue_circle", "⚪": "white_circle",
    "⚫": "black_circle", "➕": "heavy_plus_sign", "➖": "heavy_minus_sign", "🔄": "arrows_counterclockwise",
    "▶": "arrow_forward", "⏸": "double_vertical_bar", "⏹": "black_square_for_stop", "⏳": "hourglass_flowing_sand",
    "⌛": "hourglass", "⏰": "alarm_clock", "⏱": "stopwatch", "📅": "date", "📌": "pushpin", "📎": "paperclip",
    "📝": "memo", "📚": "books", "📖": "book", "📈": "chart_with_upwards_trend", "📉": "chart_with_downwards_trend",
    "📊": "bar_chart", "📦": "package", "📧": "e-mail", "📨": "incoming_envelope", "📞": "telephone_receiver",
    "💻": "computer", "💾": "floppy_disk", "🔍": "mag", "🔒": "lock", "🔓": "unlock", "🔑": "key", "🔗": "link",
    "🔧": "wrench", "🔨": "hammer", "⚙": "gear", "🧪": "test_tube", "💰": "moneybag", "💸": "money_with_wings",
    "🎵": "musical_note", "🎶": "notes", "🔔": "bell", "🔕": "no_bell", "🏁": "checkered_flag", "🙈": "see_no_evil",
    "🙉": "hear_no_evil", "🙊": "speak_no_evil", "💣": "bomb", "🕐": "clock1", "🆗": "ok", "🆕": "new", "🆘": "sos",
}  # fmt: skip
_ALIASES = {
    "thumbsup": "👍", "thumbsdown": "👎", "raised_hand": "✋", "punch": "👊", "poop": "💩", "satisfied": "😆",
    "robot": "🤖", "thinking": "🤔", "collision": "💥", "heavy_exclamation_mark": "❗", "email": "📧", "pencil": "📝",
    "open_book": "📖", "phone": "📞", "rofl": "🤣",
}  # fmt: skip
_CHARACTERS = {name: char for char, name in _NAMES.items()} | _ALIASES
_NAME = re.compile(r":?([a-z0-9_+'-]{1,100}):?")
_VARIATION = "\ufe0f"
_TONES = {chr(0x1F3FB + number): f"::skin-tone-{number + 2}" for number in range(5)}


def name_of(emoji: str) -> str | None:
    """Slack's name of an emoji, or of what is a name already; None when we don't know it."""
    bare = emoji.strip().replace(_VARIATION, "")
    tone = next((suffix for char, suffix in _TONES.items() if bare.endswith(char)), "")
    name = _NAMES.get(bare[:-1] if tone else bare)
    if name is not None:
        return name + tone
    found = _NAME.fullmatch(bare)
    return found[1] if found is not None else None


def character(name: str) -> str:
    """The emoji of that name as a character, else `:name:`; its skin tone is left out."""
    bare = name.partition("::")[0]
    return _CHARACTERS.get(bare, f":{bare}:")
