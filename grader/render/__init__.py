"""The forms of a report: one file each. None of them can change a verdict."""
