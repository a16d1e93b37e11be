"""`ol demo`: a handful of chats with one system prompt, served in all three modes side by side.

Each answer is also computed with a contiguous cache, and the demo fails where one differs.
"""

from typing import Any, NamedTuple

from grader.assertions import same_bytes
from grader.assertions.wording import say
from tests.block_manager.bench_ttft import MODEL, MODES, Tell
from tinyllm.config import EngineConfig
from tinyllm.contiguous import ContiguousKv
from tinyllm.engine import Engine, Result
from tinyllm.model import Model

SYSTEM = b"""\
System: You are the help desk of a small library. Answer in one friendly sentence. Books may be
kept for four weeks, and longer when nobody waits for them. The reading room is open from nine to
six, on Thursdays until nine.
"""
ANSWER = 12  # bytes; the weights are drawn from a seed, so they make no sense, but the same in each


class Turn(NamedTuple):
    """A question of a chat, and whose cache it may use."""

    who: str
    question: str
    tenant: str | None = None


TURNS = (
    Turn("Ada", "How long may I keep a book?"),
    Turn("Ben", "Are you open on Thursday at eight?"),
    Turn("Ada", "And if somebody waits for it?"),
    Turn("Cleo", "Where can I read?"),
    Turn("Ben", "Thank you! May I bring tea?"),
    Turn("Cleo", "How long may I keep a book?", tenant="another library"),
)

COLUMNS = [
    ("request", 11), ("prompt", -6), ("none\ncomputed", -9), ("\nTTFT", -5),
    ("hash\ncached+new", -10), ("\nTTFT", -5), ("\nhits", -4),
    ("radix\ncached+new", -10), ("\nTTFT", -5), ("\nhits", -4),
]


def main(tell: Tell) -> None:
    """Serve each turn in every mode, tell a row of figures, and prove the answers right."""
    model = Model(MODEL)
    engines = {mode: Engine(EngineConfig(MODEL, n_blocks=128, prefix_cache=mode), model)
               for mode in MODES}
    tell("text", text=f"""\
{len(TURNS)} requests, a system prompt of {len(SYSTEM)} bytes, blocks of 16. Of a prompt's tokens
some are cached and the others new: those are computed. TTFT is the CPU time to
the first token in ms; hits is the share of all prompt tokens so far that was
cached.
""")
    tell("table", columns=COLUMNS)
    chats: dict[tuple[str, str | None], bytes] = {}
    for turn in TURNS:
        chat = chats.get((turn.who, turn.tenant), SYSTEM)
        prompt = chat + f"{turn.who}: {turn.question}\nDesk: ".encode()
        results = {mode: _serve(engine, prompt, turn) for mode, engine in engines.items()}
        tell("row", cells=_row(turn, chat != SYSTEM, results, engines))
        right = _contiguous(model, prompt)
        for mode, result in results.items():
            same_bytes(result.text, right, f"the answer to {turn.who} in mode {mode}, as from a "
                                           "contiguous cache")
        chats[turn.who, turn.tenant] = prompt + right + b"\n"
    tell("text", text="\n" + _conclusion(engines) + f"""
The last answer was {say(right)}:
the model's weights are drawn by lot, so its words mean nothing.

Metrics of the engine in mode hash:
""")
    for line in engines["hash"].metrics().splitlines():
        if line.startswith(("tl_engine_prefix_cache_hit_ratio", "tl_engine_kv_blocks",
                            "tl_engine_computed_prompt", "tl_engine_cached_prompt")):
            tell("text", text=f"  {line}")


def _conclusion(engines: dict[str, Engine]) -> str:
    """Say what the table shows, and what it fails to show."""
    idle = [mode for mode in ("hash", "radix") if not engines[mode].manager.stats().hit_tokens]
    same = "Every answer was the same bytes in all modes, and from a contiguous cache.\n"
    if idle:
        return f"{same}But nothing was ever found in mode {' or '.join(idle)}.\n"
    return same + """\
A second turn sends the whole chat again, so more of it is cached; another
tenant, whose row says apart, finds nothing.
"""


def _contiguous(model: Model, prompt: bytes) -> bytes:
    """Return the answer that needs no block manager."""
    kv, answer, fresh, start = ContiguousKv(MODEL, len(prompt) + ANSWER), b"", prompt, 0
    while len(answer) < ANSWER:
        token = int(model.forward(fresh, start, kv)[-1].argmax())
        start, fresh = start + len(fresh), bytes([token])
        answer += fresh
    return answer


def _serve(engine: Engine, prompt: bytes, turn: Turn) -> Result:
    request = engine.submit(prompt, ANSWER, turn.tenant)
    engine.run()
    return engine.result(request)


def _row(turn: Turn, again: bool, results: dict[str, Result],
         engines: dict[str, Engine]) -> list[Any]:
    name = turn.who + (" again" if again else " apart" if turn.tenant else "")
    cells: list[Any] = [name, len(results["none"].prompt)]
    for mode, result in results.items():
        ms = f"{1e3 * (result.ttft_cpu or 0.0):.1f}"
        if mode == "none":
            cells += [result.computed_tokens, ms]
        else:
            cells += [f"{result.cached_tokens} + {result.computed_tokens:>3}", ms,
                      f"{engines[mode].manager.hit_rate:.2f}"]
    return cells
