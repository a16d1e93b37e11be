"""`make bench-kit`: how fast the kit is. Figures, never a verdict."""
