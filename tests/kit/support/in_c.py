"""The reference's adapters, tried by hand in a process where they are bound: what no suite asks,
because the pool in Python has no such question."""

import gc
import sys
import threading
from collections import Counter

from grader import ROOT
from grader.binding import compiler, native_module
from grader.binding.finder import Binding, install
from grader.course import manifest as courses


def bind() -> None:
    """Put the reference in C behind the modules that it stands for, in this process."""
    files = {p.stem: str(p) for p in (ROOT / "reference/tinyllm").glob("*.py")}
    built = native_module.build(courses.load().program("c"), ROOT / "reference", compiler.find(),
                           driver=False)
    install(built.bind(Binding(files, (), str(ROOT / "tests"))))


def a_view_keeps_its_pool() -> None:
    """Views share memory with the pool, and the memory goes with the last of them."""
    from tinyllm import c_bridge  # type: ignore[attr-defined, unused-ignore]
    from tinyllm.kv_pool import KvPool, PoolConfig

    ended: list[object] = []
    ffi, destroy = c_bridge.ffi, c_bridge.lib.bridge_destroy

    def noted(handle: object) -> None:
        ended.append(handle)
        destroy(handle)

    pool = KvPool(PoolConfig(3, 2, 1, 1, 2))
    owner = pool.handle  # type: ignore[attr-defined]
    ffi.gc(owner, None)  # from now on the next line's
    pool.handle = ffi.gc(ffi.cast("bridge *", owner), noted)  # type: ignore[attr-defined]
    view, other = pool.block(0, 0, False), pool.block(0, 0, False)
    view[:] = 7
    assert other.tolist() == [[[7.0, 7.0], [7.0, 7.0]]]
    part = view[0, 1]
    del pool, view, other
    gc.collect()
    assert not ended
    part[:] = 8
    assert part.tolist() == [8.0, 8.0]
    del part
    gc.collect()
    assert len(ended) == 1


def threads_take_turns() -> None:
    """Four threads that share a pool lose no block and get none twice."""
    from tinyllm.errors import PoolFullError
    from tinyllm.kv_pool import KvPool, PoolConfig

    pool = KvPool(PoolConfig(8, 1, 1, 1, 1))
    held: Counter[int] = Counter()
    wrong: list[int] = []
    lock = threading.Lock()

    def work() -> None:
        for _ in range(3000):
            try:
                ids = pool.alloc(2)
            except PoolFullError:
                continue
            with lock:
                held.update(ids)
                wrong.extend(id for id in ids if held[id] != 1)
                held.subtract(ids)
            for id in ids:
                pool.unref(id)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(switch)
    assert not wrong
    assert tuple(pool.stats()) == (8, 0, 0, 0)


if __name__ == "__main__":
    bind()
    a_view_keeps_its_pool()
    threads_take_turns()
    print("well")
