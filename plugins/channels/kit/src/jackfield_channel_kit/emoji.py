"""Emoji as agents and people write them: the character itself, or one of its usual names (C060, C062)."""

from __future__ import annotations

import re
import unicodedata

from jackfield.errors import Unsupported

__all__ = ["NAMES", "bare_emoji", "emoji_named", "literal_emoji"]

NAMES = {
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
    "☃": "snowman", "🫡": "saluting_face", "0⃣": "zero", "1⃣": "one", "2⃣": "two", "3⃣": "three", "4⃣": "four",
    "5⃣": "five", "6⃣": "six", "7⃣": "seven", "8⃣": "eight", "9⃣": "nine", "🔟": "keycap_ten",
}  # fmt: skip
"""The common ones, without variation selectors, and a name of each."""
_ALIASES = {
    "thumbsup": "👍", "thumbsdown": "👎", "raised_hand": "✋", "punch": "👊", "poop": "💩", "satisfied": "😆",
    "robot": "🤖", "thinking": "🤔", "collision": "💥", "heavy_exclamation_mark": "❗", "email": "📧", "pencil": "📝",
    "open_book": "📖", "phone": "📞", "rofl": "🤣", "thumbs_up": "👍", "like": "👍", "thumbs_down": "👎",
    "red_heart": "❤", "party_popper": "🎉", "party": "🎉", "folded_hands": "🙏", "hundred": "💯", "check": "✅",
    "check_mark_button": "✅", "check_mark": "✔", "cross_mark": "❌", "hugs": "🤗", "hugging": "🤗", "salute": "🫡",
    "star_struck": "🤩", "clapping_hands": "👏", "waving_hand": "👋",
    "unicorn": "🦄", "high_voltage": "⚡", "face_with_tears_of_joy": "😂", "loudly_crying_face": "😭",
}  # fmt: skip
_CHARACTERS = {name: char for char, name in NAMES.items()} | _ALIASES
_TEXTUAL = frozenset("❤☀❄✌☝✍☑✔‼⚠▶⏸⏹⏱⚙☃🖐")
"""Drawn as text unless U+FE0F follows."""
_IGNORED = {0xFE0E: None, 0xFE0F: None} | dict.fromkeys(range(0x1F3FB, 0x1F400))


def bare_emoji(emoji: str) -> str:
    """Without variation selectors and skin tones: what two spellings of one emoji have in common."""
    return emoji.strip().translate(_IGNORED)


def emoji_named(name: str) -> str | None:
    """The character of a name in one of its spellings (`thumbs_up`, `:+1:`, `Thumbs-Up`); None for no name of ours.

    The tone in a name like `+1::skin-tone-4` is left out.
    """
    found = name.strip().removeprefix(":").partition("::")[0].removesuffix(":").lower()
    return _CHARACTERS.get(found) or _CHARACTERS.get(found.replace("-", "_").replace(" ", "_"))


def literal_emoji(emoji: str) -> str:
    """The character that an emoji or its name stands for, as clients write it: with U+FE0F where it needs one.

    For a platform that takes any, and counts two spellings of one emoji as two.

    Raises:
        Unsupported: it is neither; it names some that are.
    """
    literal = emoji.strip()
    found = emoji_named(literal) or literal
    drawn = any(unicodedata.category(char) in ("So", "Me") for char in found) or bare_emoji(found) in NAMES
    if not drawn or len(found) > 32 or re.search(r"[A-Za-z\s]", found):
        raise Unsupported(
            f"{emoji!r} is no emoji", fix="give the emoji itself, or a name such as thumbs_up, heart, eyes or tada"
        )
    plain = found.translate({0xFE0E: None, 0xFE0F: None})
    if plain in _TEXTUAL:
        return plain + "\ufe0f"
    return plain[0] + "\ufe0f\u20e3" if plain[1:] == "\u20e3" else found
