/* The paged KV pool in C (rt.04), against tinyllm/kv_pool.h, which documents every call and status.

   All memory comes from tl_alloc when the pool is made and goes back with tl_free when it is
   destroyed. A call that fails has changed nothing, and has said why with tl_fail.

   What is given: allocation, the error slot, a vector, a hash map, an intrusive list, FNV-1a 64,
   all in c/include/tinyllm. More files of your own beside this one are compiled with it. */
#include "tinyllm/kv_pool.h"

#include <stdbool.h>
#include <string.h>

#include "tinyllm/alloc.h"
#include "tinyllm/fnv.h"
#include "tinyllm/list.h"
#include "tinyllm/map.h"
#include "tinyllm/vec.h"

/* What a pool is made of is up to you. */
struct tl_kv_pool {
    tl_kv_cfg cfg;
};

/* TODO (pass 1): Check the configuration, allocate all that the pool will ever need, put every
   block on the free list.
     - Refuse before you allocate. Which sizes are products, and which of them may be more than
       a size_t can say? A product that wraps round makes a small slab and a large lie.
     - The slab, a record a block, the free list's reserve, the index's reserve: every one may
       fail. What of the others is there then, and who frees it?
     - tl_kv_pool_destroy can take a pool that is half made, if what is not there yet is NULL.
     - *out is written last. */
tl_status tl_kv_pool_create(const tl_kv_cfg *cfg, tl_kv_pool **out) {
    (void)cfg;
    (void)out;
    return TL_TODO("tl_kv_pool_create");
}

/* TODO (pass 1): Free all that create allocated; NULL is harmless.
     - The pool itself goes last: the others hang on it. */
void tl_kv_pool_destroy(tl_kv_pool *p) {
    (void)p;
    TL_TODO("tl_kv_pool_destroy");
}

/* TODO (pass 1): Return the configuration that the pool was made with.
     - A copy inside the pool: the caller's own may be gone by now. */
const tl_kv_cfg *tl_kv_pool_cfg(const tl_kv_pool *p) {
    (void)p;
    TL_TODO("tl_kv_pool_cfg");
    return NULL;
}

/* TODO (pass 1): Take n blocks or none, and write their ids.
     - Settle first whether there is room. free + cached fits a uint32_t; does n - free, when n
       is smaller?
     - A free list that is popped by making len smaller never allocates.
     - Pass 2: cached blocks are room too. Take the free ones first, then evict, oldest first,
       exactly as many as are missing. */
tl_status tl_kv_alloc(tl_kv_pool *p, uint32_t n, uint32_t *ids) {
    (void)p;
    (void)n;
    (void)ids;
    return TL_TODO("tl_kv_alloc");
}

/* TODO (pass 1): Add a holder to a block that somebody holds; say in the error slot why not.
     - Every call that takes an id asks the same two things: is there such a block, and does
       somebody hold it? Write that once.
     - A count at UINT32_MAX must not wrap round to 0. */
void tl_kv_ref(tl_kv_pool *p, uint32_t id) {
    (void)p;
    (void)id;
    TL_TODO("tl_kv_ref");
}

/* TODO (pass 1): Give back one reference; the last one makes the block free, or cached if it
   has a hash.
     - An unsigned count never goes below zero: it goes to 4294967295. Refuse before you count
       down.
     - Pass 2: a block with a hash is appended to the list of cached ones. Its link lies in its
       record. */
tl_status tl_kv_unref(tl_kv_pool *p, uint32_t id) {
    (void)p;
    (void)id;
    return TL_TODO("tl_kv_unref");
}

/* TODO (pass 1): Give a block that the caller may write into: its own, or a copy where others
   rely on it.
     - With one holder and no hash it is `id` itself.
     - If there is no room for the copy, nothing may have happened yet.
     - The copy has all P bytes and the fill. Then the caller's reference to the original goes. */
tl_status tl_kv_cow(tl_kv_pool *p, uint32_t id, uint32_t *out) {
    (void)p;
    (void)id;
    (void)out;
    return TL_TODO("tl_kv_cow");
}

/* TODO (pass 1): Record how many of a held block's positions hold data, 0 to block_tokens.
     - Pass 2: a block with a hash is full and stays so. */
tl_status tl_kv_set_fill(tl_kv_pool *p, uint32_t id, uint32_t n_tokens) {
    (void)p;
    (void)id;
    (void)n_tokens;
    return TL_TODO("tl_kv_set_fill");
}

/* TODO (pass 1): Say how many positions of a block hold data; 0 for a free block.
     - A block that is freed has no data: set its fill to 0 at that moment. */
tl_status tl_kv_fill(const tl_kv_pool *p, uint32_t id, uint32_t *n_tokens) {
    (void)p;
    (void)id;
    (void)n_tokens;
    return TL_TODO("tl_kv_fill");
}

/* TODO (pass 1): Say how many holders a block has; 0 for a free or a cached one.
     - Any block in range may be asked about. */
tl_status tl_kv_ref_count(const tl_kv_pool *p, uint32_t id, uint32_t *n) {
    (void)p;
    (void)id;
    (void)n;
    return TL_TODO("tl_kv_ref_count");
}

/* TODO (pass 1): Return the address of the K or V slab of one layer of one block.
     - It is arithmetic: id * P + (layer * 2 + is_v) * H * B * D * 2. In which type is that
       computed? Two uint32_t make a uint32_t.
     - Out of range is NULL, with the reason in the slot. */
void *tl_kv_block_ptr(const tl_kv_pool *p, uint32_t id, uint32_t layer, int is_v) {
    (void)p;
    (void)id;
    (void)layer;
    (void)is_v;
    TL_TODO("tl_kv_block_ptr");
    return NULL;
}

/* TODO (pass 1): Return P, the payload bytes of one block.
     - Compute it once, in create, where you can refuse it. */
size_t tl_kv_block_bytes(const tl_kv_pool *p) {
    (void)p;
    TL_TODO("tl_kv_block_bytes");
    return 0;
}

/* TODO (pass 1): Count the free, the used and the cached blocks, and the evictions so far.
     - Two of the three counts are lengths of lists; the third is what is left. */
void tl_kv_stats_get(const tl_kv_pool *p, tl_kv_stats *out) {
    (void)p;
    (void)out;
    TL_TODO("tl_kv_stats_get");
}

/* TODO (pass 2): Continue a CRC-32C over n bytes.
     - A bit at a time is eight lines. Make it right first.
     - A table of 256 entries makes it eight times as fast. Who fills it, before two threads
       meet half of it? */
uint32_t tl_crc32c(const void *data, size_t n, uint32_t crc) {
    (void)data;
    (void)n;
    (void)crc;
    TL_TODO("tl_crc32c");
    return 0;
}

/* TODO (pass 2): Hash the parent's 8 bytes and each token's 4, all little-endian, by FNV-1a 64;
   0 becomes 1.
     - Write the bytes yourself, by shifts: a machine may keep numbers the other way round.
     - tl_fnv1a64 takes the state that the piece before left. */
uint64_t tl_kv_block_hash(uint64_t parent, const uint32_t *toks, uint32_t n) {
    (void)parent;
    (void)toks;
    (void)n;
    TL_TODO("tl_kv_block_hash");
    return 0;
}

/* TODO (pass 2): Give a held, full block without a hash its hash, unless another block has it.
     - Ask everything before you write anything.
     - The hash belongs in two places, the record and the index. They must never disagree. */
tl_status tl_kv_register(tl_kv_pool *p, uint32_t id, uint64_t hash) {
    (void)p;
    (void)id;
    (void)hash;
    return TL_TODO("tl_kv_register");
}

/* TODO (pass 2): Find the block with this hash, and hold it once more; revive it if it is
   cached.
     - A miss is TL_ENOTFOUND and leaves the error slot as it is: no tl_fail.
     - A block that was cached leaves the list at this moment, or somebody else evicts it while
       it is read. */
tl_status tl_kv_lookup(tl_kv_pool *p, uint64_t hash, uint32_t *id) {
    (void)p;
    (void)hash;
    (void)id;
    return TL_TODO("tl_kv_lookup");
}

/* TODO (pass 2): Say a block's hash, 0 if it has none.
     - An evicted block has none. */
tl_status tl_kv_hash_of(const tl_kv_pool *p, uint32_t id, uint64_t *hash) {
    (void)p;
    (void)id;
    (void)hash;
    return TL_TODO("tl_kv_hash_of");
}

/* TODO (pass 3): Compute the length of the envelope of n blocks: 28 + n * (12 + P) + 4.
     - The same products as in create, and one more. Check each. */
tl_status tl_kv_export_bytes(const tl_kv_cfg *cfg, uint32_t n, size_t *bytes) {
    (void)cfg;
    (void)n;
    (void)bytes;
    return TL_TODO("tl_kv_export_bytes");
}

/* TODO (pass 3): Write the envelope of these blocks into the caller's buffer, or nothing.
     - All blocks are checked, and the size, before the first byte is written. *written is the
       size in both cases.
     - Numbers go out by shifts, a byte each: a cast to uint32_t * writes to addresses that some
       machines refuse.
     - Positions past the fill are zeros, in each head: what lies there is somebody else's. */
tl_status tl_kv_export(const tl_kv_pool *p, const uint32_t *ids, uint32_t n,
                       void *buf, size_t cap, size_t *written) {
    (void)p;
    (void)ids;
    (void)n;
    (void)buf;
    (void)cap;
    (void)written;
    return TL_TODO("tl_kv_export");
}

/* TODO (pass 3): Read an envelope into new blocks, if it keeps every rule of formats/kv-
   block.md.
     - Check the length against the header before you use it: the five numbers come from a
       stranger, and their product has up to 162 bits.
     - buf may lie at any address, so read numbers a byte at a time.
     - Header, CRC, shape, every block's rules, room: all of that before the first block is
       taken.
     - A hash that is held already stays with its holder; the new block has none. */
tl_status tl_kv_import(tl_kv_pool *p, const void *buf, size_t len, uint32_t *ids_out) {
    (void)p;
    (void)buf;
    (void)len;
    (void)ids_out;
    return TL_TODO("tl_kv_import");
}
