"""Texts that strangers wrote, made safe for a log."""


def shorten(text: str, length: int) -> str:
    r"""Cut a text that strangers wrote to one line of a length, unprintable characters replaced."""
    line = " ".join(text.split())
    cut = line if len(line) <= length else line[: length - 1] + "…"
    return "".join(char if char.isprintable() else "�" for char in cut)
