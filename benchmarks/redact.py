"""`make bench B=redact`: how long it takes to mask a megabyte, with 10 and with 1,000 live secrets.

The text is what a host's log and its chats look like, with a few of the secrets in it in several encodings.  Both
redactors take turns in one process; the figure of each is its best CPU time, so that what else the machine does counts
little.  Prints milliseconds per megabyte (the target is under 10), and ends with the ratio of the times with 1,000 and
with 10 secrets (at most 1.5).
"""

from __future__ import annotations

import base64
import json
import random
import string
import time
import urllib.parse

from jackfield.redaction import MASK, Redactor

MEGABYTE = 1_000_000
ROUNDS = 15
COUNTS = (10, 1_000)
SENTENCES = (
    "the host sends every answer to its chat as soon as the session has written it and tells people about what failed "
    "while agents read documents search the web plan tasks and ask their owner before they change anything at all"
)
LINES = (
    '{{"time":"2026-01-{day:02d}T10:{minute:02d}:07.{ms:03d}Z","level":"info","logger":"jackfield.host.delivery",'
    '"event":"part 1 of dl_{id} to telegram:main:{chat} was sent in 0.{ms:03d} s","session":"ses_{id}"}}',
    "GET https://api.chat.example/v10/channels/{chat}/messages?limit=50&after={chat} 200 in {ms} ms",
    "The build of commit {hex} took {ms} s; {words}. {words}.",
    "    at run (/srv/app/node_modules/queue-{ms}/dist/index.js:{minute}:{day})",
    "{words}: {words}, and then {words}.",
)
SUSPECT = "POST https://hooks.example/in?chat={chat}&token={hex} by {{'Authorization': 'Bearer {hex}'}} 204"
"""One line in forty looks as if it held a secret."""


def text_with(chance: random.Random, secrets: list[str]) -> str:
    """A megabyte with twenty secrets in it."""
    words = SENTENCES.split()
    lines: list[str] = []
    size = 0
    while size < MEGABYTE:
        line = (SUSPECT if chance.random() < 1 / 40 else chance.choice(LINES)).format(
            day=chance.randint(1, 28),
            minute=chance.randint(0, 59),
            ms=chance.randint(0, 999),
            id="".join(chance.choices(string.ascii_lowercase + string.digits, k=20)),
            chat=chance.randint(10**8, 10**9),
            hex=f"{chance.getrandbits(160):040x}",
            words=" ".join(chance.choices(words, k=12)),
        )
        lines.append(line)
        size += len(line) + 1
    for number in range(20):
        secret = chance.choice(secrets)
        forms = (secret, urllib.parse.quote(secret), json.dumps(secret), base64.b64encode(secret.encode()).decode())
        lines.insert(chance.randrange(len(lines)), f"the answer was {forms[number % 4]} and nothing else")
    return "\n".join(lines)


def main() -> None:
    chance = random.Random(4)
    alphabet = string.ascii_letters + string.digits + "-_/+"
    secrets = ["".join(chance.choices(alphabet, k=chance.randint(12, 64))) for _ in range(max(COUNTS))]
    redactors: dict[int, Redactor] = {}
    for count in COUNTS:
        redactors[count] = Redactor()
        redactors[count].register(*secrets[:count])
    text = text_with(chance, secrets[: min(COUNTS)])
    size = len(text.encode()) / MEGABYTE
    best = dict.fromkeys(COUNTS, float("inf"))
    for count, redact in redactors.items():
        began = time.process_time()
        masked = redact(text)
        print(f"{count:5,} secrets: {(time.process_time() - began) * 1000:7.1f} ms for the first time")
        assert masked.count(MASK) >= 20, "something was not masked"
        assert not any(secret in masked for secret in secrets[: min(COUNTS)]), "a secret stayed"
    for _ in range(ROUNDS):
        for count, redact in redactors.items():
            began = time.process_time()
            redact(text)
            best[count] = min(best[count], time.process_time() - began)
    for count, seconds in best.items():
        print(f"{count:5,} secrets: {seconds * 1000 / size:7.2f} ms per MB")
    print(f"ratio {best[max(COUNTS)] / best[min(COUNTS)]:.2f} (1,000 secrets : 10; at most 1.5)")


if __name__ == "__main__":
    main()
