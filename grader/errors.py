"""The two ways a command cannot be carried out. Both end it with exit status 2."""


class CallError(Exception):
    """The call is wrong; the message is one sentence that says what to do instead."""


class KitError(Exception):
    """The kit itself is damaged or misses something; the message says what to do."""
