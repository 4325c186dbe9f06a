"""The two answers of a server that let a command be sent again."""


class Lost(Exception):
    """No reply: the command may or may not have been executed."""


class Later(Exception):
    """The server does not execute the command now. It has not done so, and the same command may succeed in a moment."""
