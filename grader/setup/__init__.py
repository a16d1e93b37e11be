"""The environment: made by the front door, from files with hashes."""
