"""The calls of `tinyllm/kv_pool.h`, made in the driver: each as C writes it, with its answer."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from grader.assertions import same
from tests.c_kv_pool.driver import Answer, Driver
from tests.c_kv_pool.reports import Place

F16, FORMAT = 1, 1


class Shape(NamedTuple):
    """The dimensions of a pool."""

    n_blocks: int = 4
    block_tokens: int = 2
    n_layers: int = 1
    n_kv_heads: int = 1
    head_dim: int = 2

    @property
    def block_bytes(self) -> int:
        return 4 * self.n_layers * self.n_kv_heads * self.block_tokens * self.head_dim


SMALL = Shape()
"""A small pool."""


class Live(NamedTuple):
    """What the counting allocator knows: the pieces that live, their bytes, all bytes of the heap,
    how often tl_alloc was asked, how often malloc and its like were instead, where the oldest piece
    was asked for, and where anything was last."""

    pieces: int
    bytes: int
    heap: int
    asked: int
    elsewhere: int
    oldest: Place
    last: Place


def place(word: str) -> Place:
    """Read a place that the driver tells as file:line."""
    file, _, line = word.rpartition(":")
    return file, int(line), ""


class Pool:
    """A pool in the driver, one of several by its number. Until `create` there is none."""

    def __init__(self, driver: Driver, number: int = 0) -> None:
        self.driver, self.number = driver, number
        self.p = "p" if number == 0 else f"p{number + 1}"

    def call(self, function: str, arguments: str, *words: object, told: bool = True) -> Answer:
        request = " ".join([str(self.number), function, *map(str, words)])
        name = "tl_crc32c" if function == "crc32c" else f"tl_kv_{function}"
        return self.driver.ask(name, f"{name}({arguments})", request, told=told)

    def create(self, shape: Shape = SMALL, dtype: int = F16, format: int = FORMAT) -> Answer:
        self.driver.slab = (shape.n_blocks, shape.block_bytes)
        cfg = ", ".join(map(str, (*shape, dtype, format)))
        request = " ".join(map(str, (self.number, "create", *shape, dtype, format)))
        return self.driver.ask("tl_kv_pool_create", f"tl_kv_pool_create({{{cfg}}}, &{self.p})",
                               request)

    def destroy(self) -> Answer:
        return self.driver.ask("tl_kv_pool_destroy", f"tl_kv_pool_destroy({self.p})",
                               f"{self.number} destroy")

    def cfg(self) -> list[int]:
        return self.driver.ask("tl_kv_pool_cfg", f"tl_kv_pool_cfg({self.p})",
                               f"{self.number} cfg").numbers

    def alloc(self, n: int) -> Answer:
        return self.call("alloc", f"{self.p}, {n}, ids", n)

    def taken(self, n: int) -> list[int]:
        """Allocate n blocks, which must succeed, and return their ids."""
        answer = self.alloc(n)
        same(answer.status, "TL_OK", f"the status of tl_kv_alloc of {n} blocks")
        return answer.numbers

    def of(self, function: str, id: int, *more: object, out: str = "", told: bool = True) -> Answer:
        """Call a function that is about one block."""
        parts = [self.p, str(id), *map(str, more), *([out] if out else [])]
        return self.call(function, ", ".join(parts), id, *more, told=told)

    def ref(self, id: int) -> Answer:
        return self.of("ref", id)

    def unref(self, id: int) -> Answer:
        return self.of("unref", id)

    def cow(self, id: int) -> Answer:
        return self.of("cow", id, out="&copy")

    def set_fill(self, id: int, n: int) -> Answer:
        return self.of("set_fill", id, n)

    def fill(self, id: int) -> Answer:
        return self.of("fill", id, out="&n", told=False)

    def ref_count(self, id: int) -> Answer:
        return self.of("ref_count", id, out="&n", told=False)

    def hash_of(self, id: int) -> Answer:
        return self.of("hash_of", id, out="&hash", told=False)

    def register(self, id: int, hash: int) -> Answer:
        return self.call("register", f"{self.p}, {id}, {hash:#x}", id, hash)

    def lookup(self, hash: int) -> Answer:
        return self.call("lookup", f"{self.p}, {hash:#x}, &id", hash)

    def block_ptr(self, id: int, layer: int, is_v: int) -> Answer:
        return self.of("block_ptr", id, layer, is_v)

    def block_bytes(self) -> int:
        (number,) = self.call("block_bytes", self.p, told=False).numbers
        return number

    def stats(self) -> list[int]:
        return self.call("stats_get", f"{self.p}, &stats", told=False).numbers

    def write(self, id: int, byte: int) -> None:
        """Write a byte to every place of every slab of a block."""
        self.driver.ask("tl_kv_block_ptr", f"write {byte:#04x} into every slab of block {id}",
                        f"{self.number} write {id} {byte}")

    def read(self, id: int) -> bytes:
        """Return all that a block holds."""
        answer = self.driver.ask("tl_kv_block_ptr", f"read block {id}", f"{self.number} read {id}",
                                 told=False)
        return bytes.fromhex(answer.words[0])

    def others(self, id: int, byte: int) -> int:
        """Return how many bytes of a block are not this one."""
        (number,) = self.driver.ask("tl_kv_block_ptr", f"look for {byte:#04x} in block {id}",
                                    f"{self.number} others {id} {byte}", told=False).numbers
        return number

    def export(self, ids: Sequence[int], cap: int, skew: int = 0) -> Answer:
        """Export into a buffer of just ``cap`` bytes, ``skew`` bytes past an aligned address. The
        answer's words: the size, whether the rest of the buffer is whole, the envelope."""
        listed = ", ".join(map(str, ids))
        return self.call("export", f"{self.p}, {{{listed}}}, {len(ids)}, buf, {cap}, &written",
                         cap, skew, *ids)

    def import_(self, data: bytes, skew: int = 0, what: str = "an envelope") -> Answer:
        """Import from just these bytes, ``skew`` bytes past an aligned address."""
        return self.call("import", f"{self.p}, {what}, {len(data)}, ids", skew, data.hex())

    def crc32c(self, data: bytes, crc: int = 0, skew: int = 0) -> int:
        (number,) = self.call("crc32c", f"data, {len(data)}, {crc:#x}", skew, crc,
                              data.hex()).numbers
        return number

    def block_hash(self, parent: int, tokens: Iterable[int]) -> int:
        tokens = list(tokens)
        listed = ", ".join(map(str, tokens))
        (number,) = self.call("block_hash", f"{parent:#x}, {{{listed}}}, {len(tokens)}", parent,
                              *tokens).numbers
        return number

    def slot(self) -> str:
        """Return the status in the error slot."""
        return self.driver.ask("tl_error_status", "tl_error_status()", "0 slot", told=False).status

    def poison(self) -> None:
        """Leave an earlier failure, TL_EBUSY, in the error slot."""
        self.driver.ask("tl_fail", 'tl_fail(TL_EBUSY, "an earlier failure")', "0 poison")

    def clear(self) -> None:
        self.driver.ask("tl_error_clear", "tl_error_clear()", "0 clear", told=False)

    def fail_at(self, n: int) -> None:
        """Let the n-th allocation from now on fail."""
        self.driver.ask("", f"let allocation {n} from now on fail", f"0 fail {n}")

    def has_room(self, bytes: int) -> bool:
        """Say whether tl_alloc can give out so much here."""
        return self.driver.ask("", "is there room", f"0 room {bytes}", told=False).status == "TL_OK"

    def live(self) -> Live:
        words = self.driver.ask("", "what lives", "0 live", told=False).words
        pieces, held, heap, asked, elsewhere = map(int, words[:5])
        return Live(pieces, held, heap, asked, elsewhere, *map(place, words[5:]))
