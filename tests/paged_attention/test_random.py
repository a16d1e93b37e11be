"""The promises under any interleaving of texts, chunks and forks."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from grader.assertions import new_example
from tests.kv_pool.samples import take
from tests.paged_attention.machine import TextMachine
from tests.paged_attention.samples import Memory, leave, new_pool, numbers, same_kv
from tinyllm.kv_pool import KvPool
from tinyllm.paged_attention import gather_kv, write_kv


def test_random_calls_read_and_write_what_they_should() -> None:
    """Texts that are written, forked, read and released in any order keep K and V of their own.

    After every call each slot of the pool is what the writes so far made it, what was gathered
    earlier is as it was, and a refused call has changed nothing.

    Why: a server mixes writes, forks, copies and reads of many requests in one step. A wrong slot
    raises no error.
    """
    run_state_machine_as_test(
        TextMachine, settings=settings(max_examples=40, stateful_step_count=25)
    )


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 2), st.integers(1, 3), st.data())
def test_any_writes_and_forks_read_back(
    block_tokens: int, layers: int, heads: int, data: st.DataObject
) -> None:
    """Texts that grow by pieces of any length in any order, and are forked at any position, each
    read back what was written for them, and no other slot changes.

    Why: the cases above are those that an author thought of.
    """
    new_example()
    pool = new_pool(14, block_tokens, layers, heads, 1)
    leave(pool, 1999)
    memory, first = Memory(pool), 1
    tables, lengths = [take(pool, 3), take(pool, 3)], [0, 0]
    for _ in range(data.draw(st.integers(1, 6), "steps")):
        text = data.draw(st.integers(0, len(tables) - 1), "text")
        table, start = tables[text], lengths[text]
        if len(tables) < 4 and data.draw(st.booleans(), "fork"):
            for id in table:
                pool.ref(id)
            tables.append(list(table))
            lengths.append(start)
        elif room := 3 * block_tokens - start:
            n = data.draw(st.integers(1, room), "positions")
            for number in range(start // block_tokens, (start + n - 1) // block_tokens + 1):
                table[number] = own(pool, memory, table[number])
            for layer in range(layers):
                k, v = numbers(pool, n, first)
                first = (first + k.size) % 1500 + 1
                write_kv(pool, table, layer, start, k, v)
                memory.write(table, layer, start, k, v)
            lengths[text] += n
    memory.judge("at the end")
    for number, (table, n) in enumerate(zip(tables, lengths, strict=True)):
        for layer in range(layers):
            same_kv(gather_kv(pool, table, layer, n), memory.of(table, layer, n),
                    f"a gather of text {number + 1}, layer {layer}, returns")


def own(pool: KvPool, memory: Memory, id: int) -> int:
    """Return a block that may be written in place of this one: copy on write."""
    copy = pool.cow(id)
    memory.slots[copy] = memory.slots[id]
    return copy
