"""JSON that a terminal shows as it is: characters that control it, or change the order of what follows, are escaped."""


def printable_json(text: str) -> str:
    """Return JSON with the same value, in which each character is printable, or ends a line.

    Such characters are only in texts, where JSON allows their escapes.
    """
    if text.isprintable():
        return text
    return "".join(char if char == "\n" or char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
