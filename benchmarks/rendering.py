"""`make bench B=rendering`: a 100 KB answer, rendered and split for each dialect, over markdown-it's bare parse of it.

Each dialect is split as its platform wants it.  The bare parse and ours take turns in one process; the figure of each
is its best CPU time, so that what else the machine does counts little.  Ends with the worst ratio; the target is at
least 0.5.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from jackfield.models import TextUnit
from jackfield_channel_kit.text.split import rendered_parts
from markdown_it import MarkdownIt

BYTES = 100_000
ROUNDS = 7
TARGETS = {
    "commonmark": (16_000, TextUnit.CODEPOINTS),
    "gfm": (65_536, TextUnit.CODEPOINTS),
    "plain": (5_000, TextUnit.UTF16),
    "slack-mrkdwn": (4_000, TextUnit.CODEPOINTS),
    "telegram-html": (4_096, TextUnit.UTF16),
    "matrix-html": (30_000, TextUnit.UTF8),
    "teams-html": (28_000, TextUnit.UTF8),
    "discord": (2_000, TextUnit.CODEPOINTS),
    "whatsapp": (4_096, TextUnit.CODEPOINTS),
    "gchat": (32_000, TextUnit.UTF8),
    "irc": (440, TextUnit.UTF8),
    "signal": (2_000, TextUnit.CODEPOINTS),
}
"""Limits of the platforms (spec/channels.md 4.2)."""
SECTION = """## Step {n}: move the queue

Before you *start*, check that **no job** is running; `queue_{n}.jobs` should be empty. The details are in
[the handbook](https://docs.example/queue/{n}?a=1&b=2), and the old way (see https://old.example/x_{n}) still works for
now, but it is ~~recommended~~ slower. Grüße, 你好, 🎉.

- Stop the workers with `systemctl stop worker@{n}` and wait.
- Copy the folder:
  - first the **small** files,
  - then the rest, `rsync -a --info=progress2 src/ dst/`.
- Start them again & look at the log <30 s later.

1. Export `QUEUE_HOME`.
2. Run the check below.
3. Compare with the table.

```python
def moved(path: str, count: int = {n}) -> bool:
    \"\"\"Whether all <jobs> have arrived.\"\"\"
    found = [name for name in os.listdir(path) if name.endswith(".job")]
    return len(found) == count and not any("*" in name for name in found)
```

| host | jobs | state |
|:-----|-----:|:-----:|
| alpha-{n} | 12 | **ok** |
| beta-{n} | 7 | `waiting` |

> When in doubt, ask: it is cheaper than a second move.
> The people of the night shift know most of it.

If the check fails twice in a row, don't repeat it a third time. Note which of the files differ, keep both copies, and
tell the owner of the queue; in nine cases of ten a lock was left behind by a worker that was killed while it wrote.

"""


def answer() -> str:
    """About 100 KB of what an agent writes."""
    size = len(SECTION.encode())
    return "".join(SECTION.replace("{n}", str(number)) for number in range(BYTES // size + 1))


def cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    text = answer()
    bare = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parsing = min(cpu(lambda: bare.parse(text)) for _ in range(2))
    print(f"{len(text.encode()):,} bytes; bare parse {parsing * 1000:.0f} ms")
    worst = float("inf")
    for dialect, (limit, unit) in TARGETS.items():
        parts = rendered_parts(text, limit, unit, dialect)
        pairs = [
            (cpu(lambda: bare.parse(text)), cpu(lambda: rendered_parts(text, limit, unit, dialect)))  # noqa: B023
            for _ in range(ROUNDS)
        ]
        parsed, ours = min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)
        ratio = parsed / ours
        worst = min(worst, ratio)
        print(f"{dialect:14} {len(parts):4} parts of {limit:6,}  {ours * 1000:6.0f} ms  ratio {ratio:.2f}")
    print(f"worst ratio: {worst:.2f}")


if __name__ == "__main__":
    main()
