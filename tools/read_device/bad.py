"""Bytes that are not what they should be."""


class Bad(Exception):
    """Bytes that are not what they should be; the text says how."""


class Unreadable(Bad):
    """Bytes that are what they should be, and that this program cannot read."""


def require(condition, what, kind=Bad):
    if not condition:
        raise kind(what)


def all_zero(data):
    return not any(data)
