"""Tenants: none finds another's blocks, and all share one memory."""

from tests.block_manager.samples import (
    CACHES,
    HASH,
    RADIX,
    admit,
    cached_tokens,
    new_manager,
    same_at_rest,
    serve,
    text,
)
from tests.judging import demand, new_example, same
from tests.judging.words import say
from tinyllm.block_hash import hash_chain

TENANTS = (None, "", "a", "b", "1", 1, 0, -1, 2**70)


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
    pool, manager = new_manager(mode, n_blocks=32)
    blocks = {}
    for tenant in TENANTS:
        got = serve(manager, "A", text(9), tenant)
        same(got.cached_tokens, 0, f"cached_tokens of the first prompt of tenant {tenant!r}")
        blocks[tenant] = list(got.blocks[:2])
    same_at_rest(pool, manager, 18, when=f"after the same prompt of {len(TENANTS)} tenants")
    for tenant in TENANTS:
        same(cached_tokens(manager, text(9), tenant), 8, f"cached_tokens for tenant {tenant!r}")
        got_blocks = manager.lookup_prefix(text(9), tenant)
        same(got_blocks, blocks[tenant], f"lookup_prefix for tenant {tenant!r}")
    same(manager.lookup_prefix(text(9), "c"), [], "lookup_prefix for a tenant that sent nothing")
    same(len(admit(manager, "B", text(8), tenant="a").blocks), 2, "blocks, tenant as a keyword")


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
