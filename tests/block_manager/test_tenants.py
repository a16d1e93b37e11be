"""Tenants: none finds another's blocks, and all share one memory."""

from grader.assertions import demand, new_example, same
from grader.assertions.wording import say
from tests.block_manager.samples import (
    CACHES,
    HASH,
    RADIX,
    admit,
    cached_tokens,
    new_manager,
    same_at_rest,
    same_room,
    serve,
    text,
)
from tinyllm.block_hash import hash_chain

TENANTS = (None, "", "a", "b", "A", " a", "1", "None", 1, 0, -1, -2, 12, 2**32 + 1, 2**61 - 1,
           2**64 + 1)
"""Some are equal by their text, without case or blanks, by their absolute value, when they are cut
to 32 or 64 bits, or by Python's hash(): that of -1 is that of -2, and that of 2^61 - 1 is 0."""


def test_tenants_share_nothing() -> None:
    """In mode hash a tenant finds its own blocks only, and who has none finds those of nobody else.

    Why: who shares blocks can find out by the time to the first token whether somebody else has
    sent a certain prompt.
    """
    share_nothing(HASH)


def test_radix_tenants_share_nothing() -> None:
    """In mode radix, too, a tenant finds its own blocks only.

    Why: a tree has no names to salt; what is the same text there must be kept apart otherwise.
    """
    share_nothing(RADIX)


def share_nothing(mode: str) -> None:
    new_example()
    pool, manager = new_manager(mode, n_blocks=2 * len(TENANTS) + 4)
    blocks = {}
    for tenant in TENANTS:
        got = serve(manager, "A", text(9), tenant)
        same(got.cached_tokens, 0, f"cached_tokens of the first prompt of tenant {tenant!r}")
        blocks[tenant] = list(got.blocks[:2])
    same_at_rest(pool, manager, mode, 2 * len(TENANTS),
                 when=f"after the same prompt of {len(TENANTS)} tenants")
    for tenant in TENANTS:
        same(cached_tokens(manager, text(9), tenant), 8, f"cached_tokens for tenant {tenant!r}")
        got_blocks = manager.lookup_prefix(text(9), tenant)
        same(got_blocks, blocks[tenant], f"lookup_prefix for tenant {tenant!r}")
    same(manager.lookup_prefix(text(9), "c"), [], "lookup_prefix for a tenant that sent nothing")
    same(len(admit(manager, "B", text(8), tenant="a").blocks), 2, "blocks, tenant as a keyword")


def test_tenant_and_tokens_do_not_run_together() -> None:
    """In both caches tenant 1 with first token 23 is not tenant 12 with first token 3, and tenant
    "a" with token 11 is not tenant "a1" with token 1.

    Why: where a tenant's name is glued to a token without a mark between them, one tenant can write
    a prompt that reads as another's.
    """
    for mode in CACHES:
        for (tenant, token), (other, its) in (((1, 23), (12, 3)), (("a", 11), ("a1", 1)),
                                              ((None, 11), (1, 1)), ((2, 1), (1, 2))):
            new_example()
            _, manager = new_manager(mode)
            serve(manager, "A", [token, *text(8)], tenant)
            same(manager.lookup_prefix([its, *text(8)], other), [],
                 f"lookup_prefix with first token {its} for tenant {other!r}, after token {token} "
                 f"of tenant {tenant!r}")
            same(cached_tokens(manager, [token, *text(8)], tenant), 8,
                 f"cached_tokens for tenant {tenant!r}")


def test_one_tenants_blocks_are_evicted_for_another() -> None:
    """A pool full of one tenant's cached blocks admits the prompts of a tenant that never sent one,
    and of no tenant; evict works the same whoever sent the last prompt.

    Why: cached blocks are capacity for everyone. An eviction that looks only among the caller's own
    blocks, and gives up where there are none, turns tenants away from a server that is idle
    (vllm#55461).
    """
    for mode in CACHES:
        for owner, newcomer in (("a", "b"), ("a", None), (None, 1)):
            new_example()
            pool, manager = new_manager(mode)
            for start in (100, 200):
                serve(manager, "A", text(16, start), owner)
            same_at_rest(pool, manager, mode, 8, when=f"with all blocks cached for {owner!r}")
            same(manager.can_allocate(32), True, "can_allocate(32)")
            serve(manager, "B", text(20, 500), newcomer)
            same(manager.stats().evictions, 5, f"evictions for 5 blocks of {newcomer!r}")
            same(manager.evict(2), 2, "evict(2)")
            same(manager.evict(8), 6, "evict(8), with six blocks cached for two tenants")
            same_at_rest(pool, manager, mode, 0, when="with the cache emptied")


def test_evict_counts_all_tenants_together() -> None:
    """evict(n) drops n blocks in all, not n per tenant, and so does an allocation.

    Why: a limit that is applied to each tenant drops the whole cache of a server with many of them
    (smg#2137).
    """
    for mode in CACHES:
        new_example()
        pool, manager = new_manager(mode)
        for tenant in ("a", "b", None, 1):
            serve(manager, "A", text(8), tenant)
        same_at_rest(pool, manager, mode, 8, when="with two blocks cached for each of four tenants")
        same(manager.evict(1), 1, "evict(1)")
        same_room(pool, 1, when="after evict(1)")
        same(manager.evict(2), 2, "evict(2)")
        same_room(pool, 3, when="after evict(2) as well")
        admit(manager, "B", text(16, 500), "a")
        same(manager.stats().evictions, 4, "evictions after a prompt that took one block more")
        same(manager.evict(9), 4, "evict(9), with four blocks left of four tenants")


def test_a_tenants_names_are_a_secret() -> None:
    """In mode hash the names of a tenant's blocks are others than those of the plain chain, and
    others in another manager; without a tenant they are the plain chain's.

    Why: names travel, in exports and in messages to routers. Nobody who sees one may tell from it
    which prompt a tenant sent; and blocks of nobody in particular must be found by every engine.
    """
    plain = hash_chain(text(8), 4)
    names = {}
    for engine in (1, 2):
        for tenant in (None, "a", 0):
            pool, manager = new_manager(HASH)
            blocks = serve(manager, "A", text(9), tenant).blocks
            names[engine, tenant] = [pool.hash_of(block) for block in blocks[:2]]
    for engine in (1, 2):
        same(names[engine, None], plain, "the names of two blocks without a tenant")
    for tenant in ("a", 0):
        seen = [*plain, *names[1, tenant], *names[2, tenant]]
        demand(len(set(seen)) == 6 and 0 not in seen,
               f"names of one text: plain, of tenant {tenant!r}, and of that one elsewhere",
               "six different names", say(seen))


def test_tenants_age_together() -> None:
    """Whoever used its prompt longest ago loses it first, whichever tenant it is.

    Why: one memory serves all. A tenant that has gone home must not keep what others need.
    """
    for mode in CACHES:
        new_example()
        _, manager = new_manager(mode, n_blocks=6)
        for tenant in ("a", "b", None):
            serve(manager, "A", text(8), tenant)
        serve(manager, "A", text(8), "a")
        admit(manager, "B", text(9, 500), "b")
        found = [len(manager.lookup_prefix(text(8), tenant)) for tenant in ("a", "b", None)]
        same(found, [2, 0, 1], "blocks left of tenant a's prompt, which was used again, of b's, "
             "which was the oldest then, and of nobody's, after a prompt that took three")
