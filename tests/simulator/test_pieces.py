"""Reservations and the buddy allocator."""

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from grader.assertions import new_example, refuses, same
from tests.simulator.model import BuddyModel
from tests.simulator.samples import request
from tinyllm.errors import InvalidArgumentError, PoolFullError
from tinyllm.simulation import Scheme
from tinyllm.simulator import BuddyAllocator, reservation


def test_reservations_differ_in_what_they_know() -> None:
    """SLOT reserves max_len, ORACLE exactly the slots that will be used, POW2 takes the output for
    the next power of two.

    Why: the three bars of the paper that introduced paging are these three rules, on one trace.
    """
    for prompt, output, wanted in ((100, 25, (2048, 131, 124)), (7, 5, (2048, 14, 11)),
                                   (1, 1, (2048, 1, 1)), (9, 33, (2048, 72, 41))):
        one = request("A", prompt, output)
        got = [reservation(one, scheme, 2048) for scheme in
               (Scheme.SLOT, Scheme.POW2, Scheme.ORACLE)]
        same(got, list(wanted), f"slot, pow2 and oracle of {prompt} + {output} tokens")


def test_a_power_of_two_is_its_own() -> None:
    """An output whose length is a power of two is not rounded up any further.

    Why: short answers are often 1, 2 or 4 tokens. Rounded up again, each of them reserves twice
    what it needs.
    """
    for output in (1, 2, 4, 64):
        one = request("A", 10, output)
        same(reservation(one, Scheme.POW2, 99), 9 + output, f"pow2 of 10 + {output} tokens")


def test_pages_reserve_nothing() -> None:
    """A reservation under PAGED is refused: blocks come one by one.

    Why: a number here would be taken for the size of a piece, and paging compared with itself.
    """
    refuses(InvalidArgumentError, "reservation under PAGED",
            lambda: reservation(request("A", 4, 4), Scheme.PAGED, 16))


def test_memory_is_cut_into_powers_of_two() -> None:
    """Memory that is no power of two begins as the powers of two that it is made of, the largest
    first, and no piece is larger than they are.

    Why: real memory is rarely a power of two; an allocator that drops the rest loses up to half of
    it.
    """
    buddy = BuddyAllocator(22)
    same(buddy.free_slots, 22, "free slots at first")
    refuses(PoolFullError, "a piece of 17 slots, 32 when rounded up", lambda: buddy.allocate(17))
    got = [buddy.allocate(n) for n in (16, 4, 2)]
    same(got, [0, 16, 20], "addresses of 16, 4 and 2 slots in memory of 22")
    same(buddy.free_slots, 0, "free slots when all is given away")


def test_a_piece_is_rounded_up() -> None:
    """A piece for n slots takes the next power of two; size() says how much that is.

    Why: the difference between what was asked for and what was taken is external waste.
    """
    buddy = BuddyAllocator(64)
    for n, size in ((1, 1), (3, 4), (5, 8), (8, 8), (9, 16)):
        address = buddy.allocate(n)
        same(buddy.size(address), size, f"size of the piece for {n} slots")
    same(buddy.free_slots, 64 - 37, "free slots after them")


def test_the_smallest_piece_that_fits_is_taken() -> None:
    """A piece comes from the smallest free one that is large enough, the lowest address of several,
    and the lower half is taken at each cut.

    Why: whoever cuts the largest piece first has none left for the next long request.
    """
    buddy = BuddyAllocator(32)
    first = [buddy.allocate(4) for _ in range(4)]
    same(first, [0, 4, 8, 12], "four pieces of 4 slots")
    buddy.free(4)
    buddy.free(12)
    same(buddy.allocate(8), 16, "8 slots, when 4 + 4 are free but apart, and 16")
    same(buddy.allocate(3), 4, "4 slots, when 4, 12, 24 and 28 could be")
    same(buddy.allocate(2), 12, "2 slots: half of the piece at 12, not of the 8 at 24")


def test_buddies_become_one_again() -> None:
    """A freed piece and its buddy become one piece as soon as both are free, and so on upwards.

    Why: a server that runs for an hour would otherwise have memory in crumbs, and no request fits.
    """
    buddy = BuddyAllocator(16)
    pieces = [buddy.allocate(4) for _ in range(4)]
    for address in (pieces[1], pieces[2]):
        buddy.free(address)
    refuses(PoolFullError, "8 slots, when 4 and 8 are free but are no buddies",
            lambda: buddy.allocate(8))
    same(buddy.free_slots, 8, "free slots all the same")
    buddy.free(pieces[0])
    same(buddy.allocate(8), 0, "8 slots, when 0 and 4 are free")
    buddy.free(0)
    buddy.free(pieces[3])
    same(buddy.allocate(16), 0, "16 slots, when all is free")


def test_bad_pieces_are_refused() -> None:
    """A piece of no slots, memory of none, and an address where no piece was given away, a second
    time too, are refused and change nothing.

    Why: a piece that is freed twice is given to two requests.
    """
    refuses(InvalidArgumentError, "memory of 0 slots", lambda: BuddyAllocator(0))
    buddy = BuddyAllocator(8)
    refuses(InvalidArgumentError, "a piece of 0 slots", lambda: buddy.allocate(0))
    address = buddy.allocate(4)
    for wrong in (1, 4, 8):
        refuses(InvalidArgumentError, f"free({wrong})", partial(buddy.free, wrong))
        refuses(InvalidArgumentError, f"size({wrong})", partial(buddy.size, wrong))
    buddy.free(address)
    refuses(InvalidArgumentError, "a second free", lambda: buddy.free(address))
    same(buddy.free_slots, 8, "free slots in the end")


@settings(max_examples=40)
@given(st.integers(1, 70), st.lists(
    st.tuples(st.booleans(), st.integers(0, 6) | st.integers(0, 40)), max_size=30))
def test_random_pieces_never_overlap(n_slots: int, calls: list[tuple[bool, int]]) -> None:
    """Random pieces taken and given back have the addresses that the rules say, never overlap, and
    leave all memory free and whole in the end.

    Why: splitting and merging are correct only together, over many calls in any order.
    """
    new_example()
    buddy, model = BuddyAllocator(n_slots), BuddyModel(n_slots)
    for give_back, n in calls:
        if give_back and model.pieces:
            address = sorted(model.pieces)[n % len(model.pieces)]
            buddy.free(address)
            del model.pieces[address]
            refuses(InvalidArgumentError, f"free({address}) a second time",
                    partial(buddy.free, address))
        elif n:
            want = model.allocate(n)
            if want is None:
                refuses(PoolFullError, f"a piece for {n} slots where none is free",
                        partial(buddy.allocate, n))
            else:
                same(buddy.allocate(n), want, f"the address of a piece for {n} slots")
        same(buddy.free_slots, model.free_slots, "free slots")
    for address in list(model.pieces):
        buddy.free(address)
        del model.pieces[address]
    same(buddy.free_slots, n_slots, "free slots when all came back")
    whole = 1 << n_slots.bit_length() - 1
    same(buddy.allocate(whole), model.allocate(whole), f"{whole} slots when all came back")
