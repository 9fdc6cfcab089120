"""What the command reports in a line, without a traceback."""


class RefusalError(RuntimeError):
    """What was asked for cannot be done here, for the reason in the message."""
