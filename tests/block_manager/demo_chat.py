"""`ol demo`: a handful of chats with one system prompt, served in all three modes side by side."""

from typing import Any, NamedTuple

from tests.block_manager.bench_ttft import MODEL, MODES, Tell
from tests.judging import same_bytes
from tinyllm.config import EngineConfig
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
    ("request", 15), ("prompt", -6), ("none\ncomputed", -9), ("\nTTFT", -5),
    ("hash\ncached", -8), ("\ncomputed", -8), ("\nTTFT", -5), ("\nhits", -5),
    ("radix\ncached", -8), ("\ncomputed", -8), ("\nTTFT", -5), ("\nhits", -5),
]


def main(tell: Tell) -> None:
    """Serve each turn in every mode, tell a row of figures, and prove that the answers agree."""
    model = Model(MODEL)
    engines = {mode: Engine(EngineConfig(MODEL, n_blocks=128, prefix_cache=mode), model)
               for mode in MODES}
    tell("text", text=f"""\
{len(TURNS)} requests, a system prompt of {len(SYSTEM)} bytes, blocks of 16. TTFT is in ms of CPU
time; hits is the share of all prompt tokens so far that were cached.
""")
    tell("table", columns=COLUMNS)
    chats: dict[tuple[str, str | None], bytes] = {}
    for turn in TURNS:
        chat = chats.get((turn.who, turn.tenant), SYSTEM)
        prompt = chat + f"{turn.who}: {turn.question}\nDesk: ".encode()
        results = {mode: _serve(engine, prompt, turn) for mode, engine in engines.items()}
        tell("row", cells=_row(turn, chat != SYSTEM, results, engines))
        for mode, result in results.items():
            same_bytes(result.text, results["none"].text,
                       f"the answer to {turn.who} in mode {mode}")
        chats[turn.who, turn.tenant] = prompt + results["none"].text + b"\n"
    tell("text", text="""
Every answer was the same bytes in all three modes. A second turn sends the whole chat again, so
more of it is cached; another tenant finds nothing. Of the engine's metrics, in mode hash:
""")
    for line in engines["hash"].metrics().splitlines():
        if line.startswith(("tl_engine_prefix_cache_hit_ratio", "tl_engine_kv_blocks",
                            "tl_engine_computed_prompt", "tl_engine_cached_prompt")):
            tell("text", text=f"  {line}")


def _serve(engine: Engine, prompt: bytes, turn: Turn) -> Result:
    request = engine.submit(prompt, ANSWER, turn.tenant)
    engine.run()
    return engine.result(request)


def _row(turn: Turn, again: bool, results: dict[str, Result],
         engines: dict[str, Engine]) -> list[Any]:
    name = turn.who + (", again" if again else ", elsewhere" if turn.tenant else "")
    cells: list[Any] = [name, len(results["none"].prompt)]
    for mode, result in results.items():
        shared = mode != "none"
        cells += [result.cached_tokens] if shared else []
        cells += [result.computed_tokens, f"{1e3 * (result.ttft_cpu or 0.0):.1f}"]
        cells += [f"{engines[mode].manager.hit_rate:.2f}"] if shared else []
    return cells
