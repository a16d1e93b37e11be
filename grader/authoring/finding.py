"""What a gate finds: what is wrong, and what to do about it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """A fault of the course in one sentence, and the remedy in another."""

    module: str
    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.module}: {self.what}. {self.remedy}."


def told(findings: list[Finding]) -> str:
    """Return findings a line each, for the message of an assertion."""
    return "\n".join(map(str, findings))
