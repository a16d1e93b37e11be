"""Which functions of a program a test calls: a mutant of a function concerns no other tests."""

import sys
import threading
from types import FrameType
from typing import Any


class Calls:
    """Records the functions of one source file that run, by their qualified names."""

    def __init__(self) -> None:
        self.file = ""
        self.names: set[str] = set()

    def begin(self, file: str) -> None:
        """Record from here on."""
        self.file = file
        threading.setprofile(self._hear)
        sys.setprofile(self._hear)

    def take(self) -> list[str]:
        """Return what was called since the last time."""
        names, self.names = sorted(self.names), set()
        if self.file:
            sys.setprofile(self._hear)  # a test may have set its own
        return names

    def _hear(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename == self.file:
            self.names.add(frame.f_code.co_qualname)


CALLS = Calls()
