"""How the report of `ol simulate` writes its figures."""


def counted(n: int, what: str, plural: str = "") -> str:
    """Return "1 request", "2 requests"."""
    return f"{n:,} {what if n == 1 else plural or what + 's'}"


def duration(us: float) -> str:
    """Return a time with three digits, in the unit that fits it."""
    if us >= 100_000_000:
        return f"{us / 1e6:,.0f} s"
    if us >= 1_000_000:
        return f"{us / 1e6:.3g} s"
    return f"{us / 1e3:.3g} ms" if us >= 1000 else f"{us:.0f} us"


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def memory(gib: float) -> str:
    """Return a size of memory in the unit that fits it."""
    if gib >= 1:
        return f"{gib:,.1f} GiB"
    return f"{gib * 1024:,.1f} MiB" if gib * 1024 >= 1 else f"{gib * 1048576:,.1f} KiB"


def listed(words: list[str]) -> str:
    """Return "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
