"""Tests of the envelope: what it is made of, and what is refused."""

import pytest
from helpers import filled, new_pool

from tinyllm.errors import BufferTooSmallError, EnvelopeError, KvError, ShapeMismatchError
from tinyllm.kv_export import crc32c, export_blocks, export_bytes, export_into, import_blocks


def test_the_checksum_by_its_check_value():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283


def test_an_envelope_by_hand():
    pool = new_pool()
    data = export_blocks(pool, [filled(pool, 2, 1, name=0x1122334455667788)])
    assert data[:28].hex() == "544c4b56010001000100000002000000010000000100000002000000"
    assert data[28:36].hex() == "8877665544332211"
    assert data[36:40].hex() == "02000000"
    assert len(data) == export_bytes(pool.config, 1) == 28 + 12 + 16 + 4
    assert int.from_bytes(data[-4:], "little") == crc32c(data[:-4])


def test_roundtrip_and_bit_flip():
    pool, other = new_pool(), new_pool()
    data = export_blocks(pool, [filled(pool, 2, 1, name=7), filled(pool, 1, 20)])
    for bit in range(0, 8 * len(data), 5):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises((EnvelopeError, ShapeMismatchError)):  # a dimension may come first
            import_blocks(other, flipped)
    assert other.stats().free == 4
    first, second = import_blocks(other, data)
    assert (other.fill(first), other.fill(second)) == (2, 1)
    assert (other.hash_of(first), other.lookup(7)) == (7, first)
    assert other.block(first, 0, 1).tolist() == [[[5.0, 6.0], [7.0, 8.0]]]
    assert other.block(second, 0, 0).tolist() == [[[20.0, 21.0], [0.0, 0.0]]]
    assert export_blocks(other, [first, second]) == data


def test_the_first_holder_keeps_a_name():
    pool, other = new_pool(), new_pool()
    mine = filled(other, 2, 1, name=9)
    (new,) = import_blocks(other, export_blocks(pool, [filled(pool, 2, 1, name=9)]))
    assert (other.hash_of(new), other.lookup(9)) == (0, mine)


def test_other_shapes_and_versions_are_refused():
    pool = new_pool()
    data = bytearray(export_blocks(pool, [filled(pool, 2, 1)]))
    with pytest.raises(ShapeMismatchError):
        import_blocks(new_pool(n_layers=2), data)
    data[4] = 2
    data[-4:] = crc32c(data[:-4]).to_bytes(4, "little")
    with pytest.raises(KvError):
        import_blocks(pool, data)


def test_a_short_buffer_is_told_its_size():
    pool = new_pool()
    block = filled(pool, 2, 1)
    buffer = bytearray(59)
    with pytest.raises(BufferTooSmallError) as caught:
        export_into(pool, [block], buffer)
    assert caught.value.needed == 60
    assert buffer == bytes(59)
