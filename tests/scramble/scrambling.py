"""Replaces every message that livevirt writes with gibberish, where it is built.

What still works then depends on no message. The gibberish is a function of the text, so a status
that says the same is not written again, but another one in every process. Text that is scrambled
stays as it is: what is copied from one status to another does not change on the way.
"""

from __future__ import annotations

import hashlib
import os
import re

#: Set for processes that are to scramble their messages; see sitecustomize.
SWITCH_VARIABLE = "SCRAMBLE_MESSAGES"
#: Set it to the key of a run to see the same gibberish again.
SEED_VARIABLE = "SCRAMBLE_SEED"
SEED = (os.environ.get(SEED_VARIABLE) or os.urandom(8).hex()).encode()

_MARK = "zq"  # begins each word, and no word of ours
_SCRAMBLED = re.compile(rf"{_MARK}[a-z]+(?: {_MARK}[a-z]+)*")
_LETTERS = "abcdefghijklmnop"


def scrambled(text: str) -> str:
    """Return gibberish of about the length of a text, with none of its words."""
    if not text or _SCRAMBLED.fullmatch(text):
        return text
    drawn = hashlib.shake_128(SEED + text.encode("utf-8", "surrogatepass"))
    digits = iter(drawn.hexdigest(max(len(text), 8)))
    words = []
    length = 0
    while length < len(text):
        size = 4 + int(next(digits), 16) % 5
        words.append(_MARK + "".join(_LETTERS[int(next(digits, "7"), 16)] for _ in range(size)))
        length += len(words[-1]) + 1
    return " ".join(words)


def install() -> None:
    """Scramble the messages of this process from now on."""
    from livevirt.kube.objects import conditions

    conditions.human_readable = scrambled
