"""Arguments that no call takes: each is a typed error, and nothing has changed."""

from collections.abc import Callable
from functools import partial
from typing import Any

from grader.assertions import new_example, refuses, same
from tests.block_manager.samples import (
    HASH,
    NO_TOKENS,
    NONE,
    RADIX,
    admit,
    cached_tokens,
    new_manager,
    serve,
    text,
    unchanged,
)
from tinyllm.block_manager import BlockManager
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_pool import KvPool


def test_unknown_requests_are_refused() -> None:
    """append_slot, release and block_table refuse an id that was never admitted, that was refused,
    or that has ended; a second release is refused, too.

    Why: a second release gives blocks back that belong to somebody else by then.
    """
    for mode in (NONE, HASH):
        new_example()
        pool, manager = new_manager(mode)
        serve(manager, "ended", text(9))
        admit(manager, "L", text(9))
        refuses(InvalidArgumentError, "an empty prompt", partial(manager.allocate, "empty", []))
        for id in ("nobody", "ended", "empty"):
            _refuse(pool, manager, {
                f"append_slot({id!r})": partial(manager.append_slot, id),
                f"release({id!r}, [])": partial(manager.release, id, []),
                f"release({id!r}, its prompt)": partial(manager.release, id, text(9)),
                f"block_table({id!r})": partial(manager.block_table, id),
            })


def test_a_live_id_is_refused() -> None:
    """An id that is live is not admitted again; when it has ended, it is.

    Why: the first request's blocks would be nobody's, and never come back.
    """
    pool, manager = new_manager(HASH)
    admit(manager, "L", text(9))
    _refuse(pool, manager, {
        "the prompt of a live request": lambda: manager.allocate("L", text(9)),
        "another prompt for a live request": lambda: manager.allocate("L", [1], "a"),
        "a live request that comes back":
            lambda: manager.allocate("L", text(9), readmission=True),
    })
    manager.release("L", text(9))
    same(admit(manager, "L", text(9)).cached_tokens, 8, "cached_tokens of an id used again")


def test_bad_prompts_are_refused() -> None:
    """A prompt without tokens, or with one that is no integer or not in 0 to 2^32 - 1, is refused;
    0 and 2^32 - 1 are tokens.

    Why: a token is hashed with 4 bytes. One that is cut to fit is another token, and finds another
    prompt's blocks; True and 1.0 are equal to 1 and would find those of 1.
    """
    pool, manager = new_manager(HASH)
    ends = [0, 2**32 - 1, 1, 1, 5]
    serve(manager, "A", ends)
    same(cached_tokens(manager, ends), 4, "cached_tokens of a prompt with the least and the "
         "greatest token")
    admit(manager, "L", text(9))
    _refuse(pool, manager, {"a prompt without tokens": lambda: manager.allocate("B", [])})
    for token in NO_TOKENS:
        for prompt in ([0, 2**32 - 1, token, 1, 5], [token]):
            _refuse(pool, manager, {
                f"the prompt {prompt}": partial(manager.allocate, "B", prompt),
                f"lookup_prefix({prompt})": partial(manager.lookup_prefix, prompt),
                f"release of L with {prompt} computed": partial(manager.release, "L", prompt),
            })


def test_bad_tenants_are_refused() -> None:
    """A tenant is a string, an integer or None; anything else is refused, a bool too.

    Why: True equals 1, and 1.0 does: somebody's flag would be somebody else's tenant.
    """
    pool, manager = new_manager(HASH)
    serve(manager, "A", text(9), 1)
    admit(manager, "L", text(9))
    tenant: Any
    for tenant in (True, False, 1.0, b"a", ["a"], ("a",), object()):
        _refuse(pool, manager, {
            "a prompt of a tenant that is none": partial(manager.allocate, "B", text(9), tenant),
            "lookup_prefix for a tenant that is none":
                partial(manager.lookup_prefix, text(9), tenant),
        })


def test_a_release_must_fit_its_request() -> None:
    """A release is refused when it names more tokens than there are slots, or others than those of
    the prompt; the request stays live, and can be released as it should be.

    Why: what it names is what later prompts find. A wrong token there is a wrong answer for
    somebody else.
    """
    pool, manager = new_manager(HASH)
    admit(manager, "L", text(9))
    manager.append_slot("L")
    for what, tokens in (
        ("11 tokens in 10 slots", [*text(9), 1, 2]),
        ("13 tokens, more than its blocks hold", [*text(9), 1, 2, 3, 4]),
        ("another first token", [0, *text(9)[1:]]),
        ("another last token of the prompt", [*text(8), 0, 1]),
        ("a wrong token in a part of the prompt", [*text(3), 0]),
        ("a token too early", text(9)[1:]),
    ):
        _refuse(pool, manager, {f"a release with {what}": partial(manager.release, "L", tokens)})
    manager.release("L", [*text(9), 1])
    same(manager.cached_blocks, 2, "cached_blocks after the release that fits")


def test_bad_counts_are_refused() -> None:
    """can_allocate raises InvalidArgumentError for a negative count.

    Why: a length comes out of arithmetic; -1 would fit into every pool.
    """
    pool, manager = new_manager(HASH)
    admit(manager, "L", text(9))
    for n in (-1, -4, -(2**32)):
        _refuse(pool, manager, {f"can_allocate({n})": partial(manager.can_allocate, n)})


def test_bad_forks_writes_and_evictions_are_refused() -> None:
    """fork refuses a parent that is not live and a child that is; write an index that is not in the
    table; evict a negative count. Nothing has changed.

    Why: place -1 is the last block to a list, and a child that is live loses what it holds.
    """
    for mode in (NONE, HASH, RADIX):
        new_example()
        pool, manager = new_manager(mode)
        serve(manager, "ended", text(9))
        admit(manager, "L", text(9))
        admit(manager, "M", text(3))
        for parent, child in (("nobody", "C"), ("ended", "C"), ("L", "M"), ("L", "L"),
                              ("ended", "L")):
            _refuse(pool, manager, {
                f"fork({parent!r}, {child!r})": partial(manager.fork, parent, child)}, "M")
        for place in (3, -1, -3, 2**64):
            _refuse(pool, manager, {
                f"write('L', {place!r})": partial(manager.write, "L", place)}, "M")
        _refuse(pool, manager, {"write('ended', 0)": partial(manager.write, "ended", 0)}, "M")
        _refuse(pool, manager, {"evict(-1)": partial(manager.evict, -1)}, "M")


def _refuse(
    pool: KvPool, manager: BlockManager, calls: dict[str, Callable[[], Any]], *others: str
) -> None:
    """Judge that each call is an InvalidArgumentError and changes nothing; L is live."""
    for what, call in calls.items():
        with unchanged(pool, manager, f"after {what}", "L", *others):
            refuses(InvalidArgumentError, what, call)
