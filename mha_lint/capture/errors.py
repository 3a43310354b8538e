"""The one error that recording a call can end in."""

from __future__ import annotations


class CaptureError(Exception):
    """The call could not be recorded.

    ``reason`` is a sentence for the user, ``exception`` what the module itself raised (None when
    the recorder gave up on its own account).
    """

    def __init__(self, reason: str, exception: BaseException | None = None) -> None:
        """Keep `reason` and the `exception` behind it."""
        super().__init__(reason)
        self.reason = reason
        self.exception = exception
