"""Random calls on two pools, with envelopes going between them."""

from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, multiple, rule, run_state_machine_as_test

from tests.judging import refuses, same_bytes
from tests.kv_export.wire import Shape, WireBlock, envelope, sent
from tests.kv_pool.machine import BLOCK_TOKENS, IDS, PoolMachine
from tests.kv_pool.model import Block, PoolModel
from tests.kv_pool.samples import new_pool
from tinyllm.errors import EnvelopeError, InvalidArgumentError
from tinyllm.kv_export import export_blocks, import_blocks

SHAPE = Shape(BLOCK_TOKENS, 1, 1, 2)  # what `new_pool` makes
NAMES = st.integers(1, 9)


class Message(NamedTuple):
    """An envelope on its way, and what is in it."""

    data: bytes
    blocks: list[WireBlock]


class TransferMachine(PoolMachine):
    """Two pools of one shape, with envelopes going between them, or back to where they came from.

    The rules act on one pool at a time; an import may make it the other one's turn.
    """

    messages = Bundle("messages")

    def __init__(self) -> None:
        super().__init__()
        self.away = (new_pool(2, BLOCK_TOKENS), PoolModel(2, BLOCK_TOKENS))

    def change_sides(self) -> None:
        here = (self.pool, self.model)
        self.pool, self.model = self.away
        self.away = here

    @rule(target=messages, blocks=st.lists(st.tuples(NAMES, st.booleans()), min_size=1, max_size=2))
    def prefill(self, blocks: list[tuple[int, bool]]) -> Any:
        """Take a block for each, fill it, name the full ones, and send them all."""
        if self.model.alloc_errors(len(blocks)):
            return multiple()
        what = f"the ids that alloc({len(blocks)}) returns"
        ids = self.model.took(self.pool.alloc(len(blocks)), [Block() for _ in blocks], what)
        for id, (name, is_full) in zip(ids, blocks, strict=True):
            self.write(id)
            self.set_fill(id, BLOCK_TOKENS if is_full else 1)
            if is_full:
                self.register(id, name)
        return self.export(ids)

    @rule(target=messages, picks=st.lists(st.integers(0, 4), min_size=1, max_size=3))
    def send(self, picks: list[int]) -> Any:
        """Send blocks that have data, whoever holds them."""
        ids = [id for id, block in sorted(self.model.blocks.items()) if block.fill]
        return self.export([ids[pick % len(ids)] for pick in picks]) if ids else multiple()

    @rule(ids=st.lists(IDS, min_size=1, max_size=2))
    def send_anything(self, ids: list[int]) -> None:
        self.export(ids)

    @rule()
    def finish(self) -> None:
        """Give back every reference that anyone has."""
        for id, block in sorted(self.model.blocks.items()):
            for _ in range(block.refs):
                self.unref(id)

    def export(self, ids: list[int]) -> Any:
        found = [self.model.blocks.get(id) for id in ids]
        if any(block is None or block.fill == 0 for block in found):
            refuses(InvalidArgumentError, f"an export of the blocks {ids}",
                    lambda: export_blocks(self.pool, ids))
            return multiple()
        blocks = [on_the_wire(block) for block in found if block]
        data = envelope(SHAPE, blocks)
        same_bytes(export_blocks(self.pool, ids), data, f"the envelope of the blocks {ids}")
        return Message(data, blocks)

    @rule(message=messages, elsewhere=st.booleans())
    def import_(self, message: Message, elsewhere: bool) -> None:
        if elsewhere:
            self.change_sides()
        n, model = len(message.blocks), self.model
        holders = [model.holder_of(b.hash) for b in message.blocks if b.hash]
        if any(holder in model.cached for holder in holders):
            return  # whether the import's own evictions may set a name free is not laid down
        if errors := model.alloc_errors(n):
            refuses(errors, f"an import of {n} blocks", lambda: self.receive(message))
            return
        names: set[int] = set()
        new = []
        for block in message.blocks:
            taken = block.hash in names or model.holder_of(block.hash) is not None
            names.add(block.hash)
            new.append(Block(1, block.n_tokens, 0 if taken else block.hash, block.payload))
        model.took(self.receive(message), new, f"the ids of the {n} imported blocks")

    @rule(message=messages, place=st.integers(0, 200))
    def import_damaged(self, message: Message, place: int) -> None:
        damaged = bytearray(message.data)
        damaged[-1 - place % (len(damaged) - 28)] ^= 0x10  # anywhere after the header
        refuses(EnvelopeError, "an import of a damaged envelope",
                lambda: import_blocks(self.pool, damaged))

    def teardown(self) -> None:
        self.change_sides()
        self.the_pool_is_as_the_model_says()

    def receive(self, message: Message) -> Any:
        return import_blocks(self.pool, message.data)


def on_the_wire(block: Block) -> WireBlock:
    return sent(SHAPE, WireBlock(block.name, block.fill, block.contents or b""))


def test_random_ops_with_transfers_keep_the_invariants() -> None:
    """Two pools obey the rules through random calls, with envelopes going to and fro.

    After every call the counts, references, fills, names and held contents are what the calls
    so far make them, each envelope is the one that the format's page gives, and a damaged one
    or one that does not fit changes nothing.

    Why: a transfer is one call of many. It must leave the pool fit for all the others.
    """
    run_state_machine_as_test(
        TransferMachine, settings=settings(max_examples=20, stateful_step_count=40)
    )
