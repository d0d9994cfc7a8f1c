"""Bytes that are not what they should be."""


class Bad(Exception):
    """Bytes that are not what they should be; the text says how."""


def require(condition, what):
    if not condition:
        raise Bad(what)


def all_zero(data):
    return not any(data)
