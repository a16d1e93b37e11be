"""What a demo shows, line by line, as it comes: texts and the rows of tables. Charts are kept."""

from typing import Any

from rich.console import Console
from rich.text import Text


class Stage:
    """Prints the figures of one demo. Columns have their widths from the start, because a row is
    shown before the next one is known."""

    def __init__(self, out: Console) -> None:
        self.out = out
        self.columns: list[tuple[str, int]] = []
        self.charts: list[dict[str, Any]] = []

    def show(self, figure: dict[str, Any]) -> None:
        """Print one figure: a text, the head of a table, a row of it; keep a chart."""
        match figure:
            case {"kind": "text", "text": text}:
                self.out.print(Text(str(text)), soft_wrap=True)
            case {"kind": "table", "columns": columns}:
                self.columns = [(str(name), int(width)) for name, width in columns]
                heads = [name.split("\n") for name, _ in self.columns]
                for row in range(-max(map(len, heads)), 0):  # the last lines are side by side
                    line = self._line([h[row] if -row <= len(h) else "" for h in heads])
                    self.out.print(Text(line, "dim"), soft_wrap=True)
            case {"kind": "row", "cells": cells}:
                self.out.print(Text(self._line([str(cell) for cell in cells])), soft_wrap=True)
            case {"kind": "chart"}:
                self.charts.append(figure)

    def _line(self, cells: list[str]) -> str:
        """Return the cells in their columns; a width below 0 stands for a column of numbers."""
        padded = [cell.rjust(-width) if width < 0 else cell.ljust(width)
                  for cell, (_, width) in zip(cells, self.columns, strict=False)]
        return ("  " + " ".join(padded)).rstrip()
