"""Random calls on two pools, with envelopes going between them."""

import random
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, multiple, precondition, rule, run_state_machine_as_test

from grader.assertions import refuses, same, same_bytes
from tests.buffers import bytes_of, contiguous
from tests.kv_export.envelopes import damaged
from tests.kv_export.reading import read
from tests.kv_export.samples import REFUSALS
from tests.kv_export.wire import Shape, WireBlock, envelope, sent
from tests.kv_pool.machine import BLOCK_TOKENS, IDS, PoolMachine
from tests.kv_pool.model import Block, Errors, PoolModel
from tests.kv_pool.samples import new_pool
from tinyllm.errors import BufferTooSmallError, EnvelopeError, InvalidArgumentError
from tinyllm.kv_export import export_blocks, export_into, import_blocks

SHAPE = Shape(BLOCK_TOKENS, 1, 1, 2)  # what `new_pool` makes
CLASHING = st.sampled_from([1, 2, 1 + 2**32, 2 + 2**63, 2**32, 2**64 - 1])
"""Hashes, most of which agree with another one in 32 or in 63 bits."""
PICKS = st.lists(st.integers(0, 4), min_size=1, max_size=4)
BUFFERS = st.integers(0, len(contiguous(bytes(4))) - 1)
"""Places in what `contiguous` returns."""


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

    @precondition(lambda self: self.model.free > 1)
    @rule(high=st.booleans())
    def hold_one_end(self, high: bool) -> None:
        """Take every free block and keep the one with the highest id, or with the lowest: the ids
        that come next then begin at the other end."""
        n = self.model.free
        got = self.model.took(self.pool.alloc(n), [Block() for _ in range(n)],
                              f"the ids that alloc({n}) returns")
        kept = max(got) if high else min(got)
        self.write(kept)
        for id in got:
            if id != kept:
                self.unref(id)

    @rule(target=messages,
          blocks=st.lists(st.tuples(CLASHING, st.booleans()), min_size=1, max_size=4))
    def prefill(self, blocks: list[tuple[int, bool]]) -> Any:
        """Take a block for each, fill it, register the full ones, and send them all."""
        if self.model.alloc_errors(len(blocks)):
            return multiple()
        what = f"the ids that alloc({len(blocks)}) returns"
        ids = self.model.took(self.pool.alloc(len(blocks)), [Block() for _ in blocks], what)
        for id, (hash, is_full) in zip(ids, blocks, strict=True):
            self.write(id)
            self.set_fill(id, BLOCK_TOKENS if is_full else 1)
            if is_full:
                self.register(id, hash)
        return self.export(ids)

    @rule(target=messages, picks=PICKS)
    def send(self, picks: list[int]) -> Any:
        """Send blocks that have data, whatever their state is."""
        ids = self.with_data(picks)
        return self.export(ids) if ids else multiple()

    @rule(picks=PICKS, buffer=BUFFERS, items_more=st.integers(-4, 4))
    def send_into(self, picks: list[int], buffer: int, items_more: int) -> None:
        """Send blocks into a buffer of the caller, which may be some bytes too short or too long.
        Its size is that of the envelope and ``items_more`` times 4 bytes."""
        ids = self.with_data(picks)
        data = self.envelope_of(ids)
        before = b"\xee" * (len(data) + 4 * items_more)
        target: Any = contiguous(before)[buffer][1]
        what = f"an export of the blocks {ids} into {len(before)} bytes"
        if buffer == 0:  # bytes, which are read-only
            refuses((InvalidArgumentError, TypeError, BufferTooSmallError), f"{what} to be read",
                    lambda: export_into(self.pool, ids, target))
            data = b""
        elif items_more < 0:
            error = refuses(BufferTooSmallError, what, lambda: export_into(self.pool, ids, target))
            same(getattr(error, "needed", None), len(data), "the size needed")
            data = b""
        else:
            same(export_into(self.pool, ids, target), len(data), f"the bytes written by {what}")
        same_bytes(bytes_of(target), data + before[len(data) :], f"the buffer after {what}")

    @rule(ids=st.lists(IDS, min_size=1, max_size=2))
    def send_anything(self, ids: list[int]) -> None:
        self.export(ids)

    @rule()
    def finish(self) -> None:
        """Release every reference that there is."""
        for id, block in sorted(self.model.blocks.items()):
            for _ in range(block.refs):
                self.unref(id)

    @rule(message=messages, elsewhere=st.booleans(), buffer=BUFFERS)
    def import_(self, message: Message, elsewhere: bool, buffer: int) -> None:
        if elsewhere:
            self.change_sides()
        _, source = contiguous(message.data)[buffer]
        self.receive(source, message.blocks, self.model.alloc_errors(len(message.blocks)))

    @rule(message=messages, place=st.integers(0, 200))
    def import_flipped(self, message: Message, place: int) -> None:
        """Import an envelope in which one bit after the header was flipped.

        Where the pool has too few blocks for it as well, either fault may be reported.
        """
        data = bytearray(message.data)
        data[-1 - place % (len(data) - 28)] ^= 0x10
        errors: Errors = (EnvelopeError, *self.model.alloc_errors(len(message.blocks)))
        refuses(errors, "an import of a damaged envelope",
                lambda: import_blocks(self.pool, data))

    @rule(seed=st.integers(0, 2**32 - 1))
    def import_any(self, seed: int) -> None:
        """Import envelopes of another writer, most of them with a fault and a right CRC, and
        release each block that arrives."""
        source = random.Random(seed)
        for _ in range(16):
            data = damaged(source)
            reading = read(data, SHAPE, self.model.room)
            errors = tuple(REFUSALS[status] for status in sorted(reading.refusals))
            ids = self.receive(data, reading.blocks, errors)
            if ids:
                self.the_pool_is_as_the_model_says()
            for id in ids:
                self.unref(id)

    def teardown(self) -> None:
        self.change_sides()
        self.the_pool_is_as_the_model_says()

    def with_data(self, picks: list[int]) -> list[int]:
        """Return ids of blocks that hold data, in the order of ``picks``."""
        ids = [id for id, block in sorted(self.model.blocks.items()) if block.fill]
        return [ids[pick % len(ids)] for pick in picks] if ids else []

    def envelope_of(self, ids: list[int]) -> bytes:
        return envelope(SHAPE, [on_the_wire(self.model.blocks[id]) for id in ids])

    def export(self, ids: list[int]) -> Any:
        """Judge the export of these blocks, and return what was sent."""
        found = [self.model.blocks.get(id) for id in ids]
        if any(block is None or block.fill == 0 for block in found):
            what = f"an export of the blocks {ids}"
            refuses(InvalidArgumentError, what, lambda: export_blocks(self.pool, ids))
            buffer = bytearray(b"\xee" * 200)
            refuses(InvalidArgumentError, what, lambda: export_into(self.pool, ids, buffer))
            same_bytes(buffer, b"\xee" * 200, f"the buffer after {what}")
            return multiple()
        data = self.envelope_of(ids)
        same_bytes(export_blocks(self.pool, ids), data, f"the envelope of the blocks {ids}")
        return Message(data, [on_the_wire(block) for block in found if block])

    def receive(self, data: Any, blocks: list[WireBlock], errors: Errors) -> list[int]:
        """Judge the import of an envelope that has these blocks, or raises one of ``errors``.
        Return the ids of what was imported."""
        model, n = self.model, len(blocks)
        if errors:
            refuses(errors, "the import of an envelope", lambda: import_blocks(self.pool, data))
            return []
        evicted = model.cached[: max(0, n - model.free)]
        if any(model.holder_of(block.hash) in evicted for block in blocks):
            return []  # whether the import's own evictions may set a hash free is unspecified
        hashes: set[int] = set()
        new = []
        for block in blocks:
            taken = block.hash in hashes or model.holder_of(block.hash) is not None
            hashes.add(block.hash)
            carried = on_the_wire(Block(1, block.n_tokens, block.hash, block.payload))
            new.append(Block(1, block.n_tokens, 0 if taken else block.hash, carried.payload))
        got = import_blocks(self.pool, data)
        return model.took(got, new, f"the ids of the {n} imported blocks")


def on_the_wire(block: Block) -> WireBlock:
    return sent(SHAPE, WireBlock(block.name, block.fill, block.contents or b""))


def test_random_ops_with_transfers_keep_the_invariants() -> None:
    """Two pools obey the rules through random calls, with envelopes going to and fro.

    After every call the counts, references, fills, hashes and contents in use are what the calls
    so far make them, each envelope is the one that the format's page gives, and a damaged one
    or one that does not fit changes nothing.

    Why: a transfer is one call of many. It must leave the pool fit for all the others.
    """
    run_state_machine_as_test(
        TransferMachine, settings=settings(max_examples=50, stateful_step_count=40)
    )
