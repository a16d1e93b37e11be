/* The paged KV pool (rt.04): fixed-size blocks in one slab, shared by reference count.

   Every block is in exactly one state, and free + used + cached == n_blocks after every call:

       free     nobody holds it and it has no hash
       used     somebody holds it: its reference count is at least 1
       cached   nobody holds it, but it has a hash, so that a lookup may revive it, until an
                allocation evicts it; the block that was cached first goes first

   Failure. A call that returns anything but TL_OK has changed nothing, and has said why in the
   error slot (tinyllm/error.h), but for TL_ENOTFOUND, which leaves the slot alone. A call that
   returns no status says so in the slot where its text tells of a failure. A call that is wrong in
   several ways may be refused for any of them.

   Memory. tl_kv_pool_create allocates all of it, by tl_alloc, and tl_kv_pool_destroy frees all of
   it; between them no call allocates anything.

   Pointers must not be NULL, except where nothing is behind them: `ids` where n is 0, `buf` where
   cap or len is 0, `ids_out` where the envelope has no blocks. `out`-like pointers are written only
   on TL_OK, except where it says otherwise.

   Threads. A pool is for one thread at a time: whoever shares one takes turns, from the call to
   its return, and what a view shows is up to those who write through it. Different pools may be
   used at the same time. tl_kv_block_hash, tl_kv_export_bytes and tl_crc32c touch no pool and may
   be called at any time. Each thread has an error slot of its own. */
#ifndef TINYLLM_KV_POOL_H
#define TINYLLM_KV_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "tinyllm/error.h"

enum { TL_F16 = 1 };       /* the one data type: IEEE 754 binary16, in memory as in an envelope */
enum { TL_KV_FORMAT = 1 }; /* the one format: of formats/kv-block.md */

typedef struct {
    uint32_t n_blocks, block_tokens; /* N blocks of B positions each */
    uint32_t n_layers, n_kv_heads, head_dim; /* L, H and D */
    int32_t dtype;                           /* TL_F16 */
    uint32_t format;                         /* TL_KV_FORMAT */
} tl_kv_cfg;

typedef struct {
    uint32_t free, used, cached, evictions;
} tl_kv_stats;

typedef struct tl_kv_pool tl_kv_pool;

/* Pass 1: blocks and reference counts. */

/* Make a pool of free blocks in *out.
   TL_EUNSUPPORTED  another dtype than TL_F16, another format than 1
   TL_EINVAL        a dimension is 0
   TL_ENOMEM        there is no memory, or the sizes do not fit a size_t; nothing is kept of it */
tl_status tl_kv_pool_create(const tl_kv_cfg *cfg, tl_kv_pool **out);

/* Free a pool, whoever still holds blocks of it. NULL is harmless. */
void tl_kv_pool_destroy(tl_kv_pool *p);

/* The pool's configuration, good as long as the pool. */
const tl_kv_cfg *tl_kv_pool_cfg(const tl_kv_pool *p);

/* Take n blocks into ids[0 .. n-1], all or nothing: free ones first, then cached ones are evicted,
   oldest first. Each has reference count 1, fill 0, no hash; its bytes are whatever was there.
   TL_EFULL         free and cached together are fewer than n; ids is not touched */
tl_status tl_kv_alloc(tl_kv_pool *p, uint32_t n, uint32_t *ids);

/* Add a holder to a block that is held. It returns no status; in the error slot:
   TL_EINVAL        no such block, nobody holds it (only a lookup revives), or it has 2^32 - 1
                    holders */
void tl_kv_ref(tl_kv_pool *p, uint32_t id);

/* Give back one reference. With the last one, a block with a hash becomes cached, as the newest;
   any other becomes free.
   TL_EINVAL        no such block, or nobody holds it */
tl_status tl_kv_unref(tl_kv_pool *p, uint32_t id);

/* Copy on write: a block that the caller may write into, in *out. The only holder of a block
   without a hash gets `id` back. Otherwise it is a new block as of tl_kv_alloc, with the bytes and
   the fill of the original, and the caller's reference moves to it.
   TL_EINVAL        no such block, or nobody holds it
   TL_EFULL         there is no room for a copy */
tl_status tl_kv_cow(tl_kv_pool *p, uint32_t id, uint32_t *out);

/* Say that the block's first n_tokens positions hold data.
   TL_EINVAL        no such block, nobody holds it, it has a hash, or n_tokens is more than B */
tl_status tl_kv_set_fill(tl_kv_pool *p, uint32_t id, uint32_t n_tokens);

/* How many positions hold data: 0 for a free block, in *n_tokens.
   TL_EINVAL        no such block */
tl_status tl_kv_fill(const tl_kv_pool *p, uint32_t id, uint32_t *n_tokens);

/* How many holders a block has: 0 for a free or a cached one, in *n.
   TL_EINVAL        no such block */
tl_status tl_kv_ref_count(const tl_kv_pool *p, uint32_t id, uint32_t *n);

/* The K (is_v 0) or V (is_v 1) slab of one layer of a block: H * B * D f16 values [H][B][D], in the
   slab of the whole pool at id * P + (layer * 2 + is_v) * H * B * D * 2. Held or not, any block
   will do; the address never changes. NULL, and in the error slot:
   TL_EINVAL        no such block, no such layer, or another is_v */
void *tl_kv_block_ptr(const tl_kv_pool *p, uint32_t id, uint32_t layer, int is_v);

/* P, the payload bytes of one block: L * 2 * H * B * D * 2. */
size_t tl_kv_block_bytes(const tl_kv_pool *p);

/* How many blocks are in each state, and how many were evicted since create. */
void tl_kv_stats_get(const tl_kv_pool *p, tl_kv_stats *out);

/* Pass 2: names, lookup and the cache. */

/* CRC-32C (Castagnoli) of n bytes, continued from an earlier result `crc`, 0 to begin: reflected
   polynomial 0x82F63B78, initial value and final XOR 0xFFFFFFFF. */
uint32_t tl_crc32c(const void *data, size_t n, uint32_t crc);

/* The hash of a block that holds these n tokens and follows the block `parent`, 0 for the first
   one: FNV-1a 64 over parent as 8 little-endian bytes and each token as 4. A result of 0 becomes
   1. */
uint64_t tl_kv_block_hash(uint64_t parent, const uint32_t *toks, uint32_t n);

/* Give a full, held block its hash, so that tl_kv_lookup finds it.
   TL_EINVAL        no such block, nobody holds it, it is not full, it has a hash, or hash is 0
   TL_EBUSY         another block has this hash, and keeps it */
tl_status tl_kv_register(tl_kv_pool *p, uint32_t id, uint64_t hash);

/* The block with this hash, in *id, and a reference to it for the caller. A cached one is used
   again.
   TL_ENOTFOUND     there is none (never one for the hash 0); *id and the error slot stay as they
                    are
   TL_EINVAL        it has 2^32 - 1 holders */
tl_status tl_kv_lookup(tl_kv_pool *p, uint64_t hash, uint32_t *id);

/* A block's hash, 0 if it has none, in *hash.
   TL_EINVAL        no such block */
tl_status tl_kv_hash_of(const tl_kv_pool *p, uint32_t id, uint64_t *hash);

/* Pass 3: export and import, by formats/kv-block.md. */

/* How many bytes the envelope of n blocks takes, in *bytes: 28 + n * (12 + P) + 4. Only the
   dimensions of cfg count.
   TL_EINVAL        it is more than a size_t can say, or (which for n 0 need not be asked) P is */
tl_status tl_kv_export_bytes(const tl_kv_cfg *cfg, uint32_t n, size_t *bytes);

/* Write the envelope of these n blocks, in this order, to the front of buf; *written is its
   length. Nothing past it is touched. A block may stand twice, and may be cached.
   TL_EINVAL        an id is no block or one with fill 0, or the length is more than a size_t can
                    say; nothing is written
   TL_EFULL         cap is too small; *written is the size that it must have, buf is not touched */
tl_status tl_kv_export(const tl_kv_pool *p, const uint32_t *ids, uint32_t n,
                       void *buf, size_t cap, size_t *written);

/* Read the envelope in buf[0 .. len-1] into new blocks, held once each. ids_out gets their ids, in
   the envelope's order: as many as its header counts (offset 8), and never more than the pool has
   blocks. buf may lie at any address. A block whose hash is held already stays without one. Blocks
   are taken as by tl_kv_alloc, all at once or one by one: whether a hash is still held whose block
   is evicted for a later one is open.
   TL_EFORMAT       damaged bytes, another format, or a block that breaks a rule
   TL_ESHAPE        blocks of other dimensions than this pool's
   TL_EFULL         the blocks do not fit */
tl_status tl_kv_import(tl_kv_pool *p, const void *buf, size_t len, uint32_t *ids_out);

#endif
