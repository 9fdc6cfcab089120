"""The error that the command reports in a line, without a traceback."""


class RefusalError(RuntimeError):
    """A request that cannot be met here, for the reason in the message."""
