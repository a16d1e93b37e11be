"""The gates that a course must pass, for those who write it: `ol author check`."""
