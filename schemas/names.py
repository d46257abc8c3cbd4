"""File names as text, one rule for the shipper, replay and post-mortem: not every name is UTF-8."""


def printable(text: str) -> str:
    r"""The name without bytes that are no UTF-8: each becomes `\xNN`. Different names stay different."""
    if is_utf8(text) and "\\x" not in text:
        return text
    raw = text.replace("\\", "\\\\").encode("utf-8", "surrogateescape")
    return raw.decode("utf-8", "backslashreplace")


def is_utf8(text: str) -> bool:
    """Whether the text can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
