/* The paged KV pool (rt.04): fixed-size blocks in one slab, shared by reference count.

   A block's record says who holds it, what it holds and, while it is cached, where it stands in
   the queue for eviction. The free blocks' ids are a stack; the index finds a block by its hash.
   All of it is reserved for N blocks when the pool is made. */
#include "tinyllm/kv_pool.h"

#include <stdbool.h>
#include <string.h>

#include "bytes.h"
#include "crc32c.h"
#include "tinyllm/alloc.h"
#include "tinyllm/fnv.h"
#include "tinyllm/list.h"
#include "tinyllm/map.h"
#include "tinyllm/vec.h"

typedef struct {
    uint64_t hash; /* 0: it has none */
    uint32_t refs;
    uint32_t fill;
    tl_link cached; /* its place in the queue, while it is cached */
} record;

struct tl_kv_pool {
    tl_kv_cfg cfg;
    size_t slab_bytes;  /* of the K or V of one layer of one block: H * B * D * 2 */
    size_t block_bytes; /* P */
    unsigned char *slab;
    record *blocks;
    tl_vec free;    /* ids; the block freed last goes first */
    tl_map index;   /* hash -> id */
    tl_list cached; /* the oldest first */
    uint32_t n_cached, evictions;
};

static bool multiplied(size_t a, size_t b, size_t *product) {
    if (b != 0 && a > SIZE_MAX / b) return false;
    *product = a * b;
    return true;
}

/* The bytes of one slab and of one block; false if a size_t cannot say them. */
static bool sizes(const tl_kv_cfg *cfg, size_t *slab_bytes, size_t *block_bytes) {
    return multiplied(cfg->n_kv_heads, cfg->block_tokens, slab_bytes)
        && multiplied(*slab_bytes, cfg->head_dim, slab_bytes)
        && multiplied(*slab_bytes, 2, slab_bytes)
        && multiplied(*slab_bytes, 2, block_bytes)
        && multiplied(*block_bytes, cfg->n_layers, block_bytes);
}

/* Any block's record, or NULL with the reason in the slot. */
static record *any(const tl_kv_pool *p, uint32_t id) {
    if (id < p->cfg.n_blocks) return &p->blocks[id];
    tl_fail(TL_EINVAL, "blocks are 0..%u, not %u", p->cfg.n_blocks - 1, id);
    return NULL;
}

/* A held block's record, or NULL with the reason in the slot. */
static record *held(const tl_kv_pool *p, uint32_t id) {
    record *block = any(p, id);
    if (!block || block->refs) return block;
    tl_fail(TL_EINVAL, "nobody holds block %u", id);
    return NULL;
}

static unsigned char *payload(const tl_kv_pool *p, uint32_t id) {
    return p->slab + id * p->block_bytes;
}

static void release(tl_kv_pool *p, uint32_t id) {
    p->blocks[id].fill = 0;
    tl_vec_push(&p->free, id); /* within its reserve */
}

/* Forget the oldest cached block and free it. */
static void evict(tl_kv_pool *p) {
    record *oldest = TL_CONTAINER(tl_list_first(&p->cached), record, cached);
    tl_list_remove(&oldest->cached);
    p->n_cached--;
    tl_map_remove(&p->index, oldest->hash);
    oldest->hash = 0;
    p->evictions++;
    release(p, (uint32_t)(oldest - p->blocks));
}

/* Allocate what the pool needs; what could not be had is left NULL. */
static tl_status reserve(tl_kv_pool *p) {
    uint32_t n = p->cfg.n_blocks;
    tl_status status;
    if ((status = tl_vec_reserve(&p->free, n)) != TL_OK) return status;
    if ((status = tl_map_reserve(&p->index, n)) != TL_OK) return status;
    if (!(p->blocks = tl_alloc(n, sizeof *p->blocks))) {
        return tl_fail(TL_ENOMEM, "no memory for the records of %u blocks", n);
    }
    if (!(p->slab = tl_alloc(n, p->block_bytes))) {
        return tl_fail(TL_ENOMEM, "no memory for %u blocks of %zu bytes", n, p->block_bytes);
    }
    return TL_OK;
}

tl_status tl_kv_pool_create(const tl_kv_cfg *cfg, tl_kv_pool **out) {
    if (cfg->dtype != TL_F16) return tl_fail(TL_EUNSUPPORTED, "dtype %d is not f16", cfg->dtype);
    if (cfg->format != TL_KV_FORMAT) {
        return tl_fail(TL_EUNSUPPORTED, "format %u: only 1 is there", cfg->format);
    }
    if (!cfg->n_blocks || !cfg->block_tokens || !cfg->n_layers || !cfg->n_kv_heads
        || !cfg->head_dim) {
        return tl_fail(TL_EINVAL, "every dimension is at least 1");
    }
    size_t slab_bytes, block_bytes, all_bytes;
    if (!sizes(cfg, &slab_bytes, &block_bytes)
        || !multiplied(block_bytes, cfg->n_blocks, &all_bytes)) {
        return tl_fail(TL_ENOMEM, "%u such blocks are more than memory can be", cfg->n_blocks);
    }
    tl_kv_pool *p = tl_alloc(1, sizeof *p);
    if (!p) return tl_fail(TL_ENOMEM, "no memory for a pool");
    p->cfg = *cfg;
    p->slab_bytes = slab_bytes;
    p->block_bytes = block_bytes;
    tl_list_init(&p->cached);
    tl_status status = reserve(p);
    if (status != TL_OK) {
        tl_kv_pool_destroy(p);
        return status;
    }
    for (uint32_t id = cfg->n_blocks; id-- > 0;) tl_vec_push(&p->free, id);
    *out = p;
    return TL_OK;
}

void tl_kv_pool_destroy(tl_kv_pool *p) {
    if (!p) return;
    tl_vec_free(&p->free);
    tl_map_free(&p->index);
    tl_free(p->blocks);
    tl_free(p->slab);
    tl_free(p);
}

const tl_kv_cfg *tl_kv_pool_cfg(const tl_kv_pool *p) {
    return &p->cfg;
}

tl_status tl_kv_alloc(tl_kv_pool *p, uint32_t n, uint32_t *ids) {
    if (n > p->free.len && n - p->free.len > p->n_cached) {
        return tl_fail(TL_EFULL, "%u blocks asked for, %u free, %u cached", n, p->free.len,
                       p->n_cached);
    }
    while (p->free.len < n) evict(p);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = p->free.data[--p->free.len];
        p->blocks[id].refs = 1;
        ids[i] = id;
    }
    return TL_OK;
}

void tl_kv_ref(tl_kv_pool *p, uint32_t id) {
    record *block = held(p, id);
    if (!block) return;
    if (block->refs == UINT32_MAX) {
        tl_fail(TL_EINVAL, "block %u has as many holders as can be counted", id);
        return;
    }
    block->refs++;
}

tl_status tl_kv_unref(tl_kv_pool *p, uint32_t id) {
    record *block = held(p, id);
    if (!block) return TL_EINVAL;
    if (--block->refs) return TL_OK;
    if (block->hash) {
        tl_list_append(&p->cached, &block->cached);
        p->n_cached++;
    } else {
        release(p, id);
    }
    return TL_OK;
}

tl_status tl_kv_cow(tl_kv_pool *p, uint32_t id, uint32_t *out) {
    record *block = held(p, id);
    if (!block) return TL_EINVAL;
    if (block->refs == 1 && !block->hash) {
        *out = id;
        return TL_OK;
    }
    uint32_t copy;
    tl_status status = tl_kv_alloc(p, 1, &copy);
    if (status != TL_OK) return status;
    memcpy(payload(p, copy), payload(p, id), p->block_bytes);
    p->blocks[copy].fill = block->fill;
    *out = copy;
    return tl_kv_unref(p, id);
}

tl_status tl_kv_set_fill(tl_kv_pool *p, uint32_t id, uint32_t n_tokens) {
    record *block = held(p, id);
    if (!block) return TL_EINVAL;
    if (n_tokens > p->cfg.block_tokens) {
        return tl_fail(TL_EINVAL, "a block has %u positions, not %u", p->cfg.block_tokens,
                       n_tokens);
    }
    if (block->hash) {
        return tl_fail(TL_EINVAL, "block %u has a hash, so its contents are fixed", id);
    }
    block->fill = n_tokens;
    return TL_OK;
}

tl_status tl_kv_fill(const tl_kv_pool *p, uint32_t id, uint32_t *n_tokens) {
    const record *block = any(p, id);
    if (!block) return TL_EINVAL;
    *n_tokens = block->fill;
    return TL_OK;
}

tl_status tl_kv_ref_count(const tl_kv_pool *p, uint32_t id, uint32_t *n) {
    const record *block = any(p, id);
    if (!block) return TL_EINVAL;
    *n = block->refs;
    return TL_OK;
}

void *tl_kv_block_ptr(const tl_kv_pool *p, uint32_t id, uint32_t layer, int is_v) {
    if (!any(p, id)) return NULL;
    if (layer >= p->cfg.n_layers || is_v < 0 || is_v > 1) {
        tl_fail(TL_EINVAL, "layer %u, is_v %d: layers are 0..%u, is_v is 0 or 1", layer, is_v,
                p->cfg.n_layers - 1);
        return NULL;
    }
    return payload(p, id) + ((size_t)layer * 2 + (size_t)is_v) * p->slab_bytes;
}

size_t tl_kv_block_bytes(const tl_kv_pool *p) {
    return p->block_bytes;
}

void tl_kv_stats_get(const tl_kv_pool *p, tl_kv_stats *out) {
    out->free = p->free.len;
    out->cached = p->n_cached;
    out->used = p->cfg.n_blocks - out->free - out->cached;
    out->evictions = p->evictions;
}

uint32_t tl_crc32c(const void *data, size_t n, uint32_t crc) {
    return crc32c_move(crc ^ 0xFFFFFFFF, data, n) ^ 0xFFFFFFFF;
}

uint64_t tl_kv_block_hash(uint64_t parent, const uint32_t *toks, uint32_t n) {
    unsigned char bytes[8];
    put64(bytes, parent);
    uint64_t state = tl_fnv1a64(bytes, 8, TL_FNV_OFFSET);
    for (uint32_t i = 0; i < n; i++) {
        put32(bytes, toks[i]);
        state = tl_fnv1a64(bytes, 4, state);
    }
    return state ? state : 1;
}

tl_status tl_kv_register(tl_kv_pool *p, uint32_t id, uint64_t hash) {
    record *block = held(p, id);
    if (!block) return TL_EINVAL;
    if (!hash) return tl_fail(TL_EINVAL, "the hash 0 means that there is none");
    if (block->fill != p->cfg.block_tokens) {
        return tl_fail(TL_EINVAL, "block %u is partial: only full blocks have a hash", id);
    }
    if (block->hash) return tl_fail(TL_EINVAL, "block %u has a hash already", id);
    uint32_t holder;
    if (tl_map_get(&p->index, hash, &holder)) {
        return tl_fail(TL_EBUSY, "block %u holds this hash already", holder);
    }
    block->hash = hash;
    return tl_map_put(&p->index, hash, id); /* within its reserve */
}

tl_status tl_kv_lookup(tl_kv_pool *p, uint64_t hash, uint32_t *id) {
    uint32_t found;
    if (!tl_map_get(&p->index, hash, &found)) return TL_ENOTFOUND;
    record *block = &p->blocks[found];
    if (block->refs == UINT32_MAX) {
        return tl_fail(TL_EINVAL, "block %u has as many holders as can be counted", found);
    }
    if (block->refs++ == 0) {
        tl_list_remove(&block->cached);
        p->n_cached--;
    }
    *id = found;
    return TL_OK;
}

tl_status tl_kv_hash_of(const tl_kv_pool *p, uint32_t id, uint64_t *hash) {
    const record *block = any(p, id);
    if (!block) return TL_EINVAL;
    *hash = block->hash;
    return TL_OK;
}

/* The envelope: a header, for each block its hash, its fill and its payload, a trailer. */

enum { HEADER = 28, BLOCK = 12, TRAILER = 4, VERSION = 1 };
static const unsigned char magic[4] = {'T', 'L', 'K', 'V'};

/* The length of an envelope; false if a size_t cannot say it. */
static bool length(uint32_t n, size_t block_bytes, size_t *bytes) {
    if (block_bytes > SIZE_MAX - BLOCK || !multiplied(n, BLOCK + block_bytes, bytes)
        || *bytes > SIZE_MAX - HEADER - TRAILER) {
        return false;
    }
    *bytes += HEADER + TRAILER;
    return true;
}

tl_status tl_kv_export_bytes(const tl_kv_cfg *cfg, uint32_t n, size_t *bytes) {
    size_t slab_bytes, block_bytes, all_bytes;
    if (!sizes(cfg, &slab_bytes, &block_bytes) || !length(n, block_bytes, &all_bytes)) {
        return tl_fail(TL_EINVAL, "an envelope of %u such blocks is longer than memory", n);
    }
    *bytes = all_bytes;
    return TL_OK;
}

static void put_header(const tl_kv_cfg *cfg, uint32_t n, unsigned char *to) {
    memcpy(to, magic, 4);
    put16(to + 4, VERSION);
    put16(to + 6, TL_F16);
    put32(to + 8, n);
    put32(to + 12, cfg->block_tokens);
    put32(to + 16, cfg->n_layers);
    put32(to + 20, cfg->n_kv_heads);
    put32(to + 24, cfg->head_dim);
}

/* Copy a payload row by row, a row being the positions of one head: those below the fill as they
   are, zeros in place of the others. */
static void copy_filled(const tl_kv_pool *p, uint32_t fill, const unsigned char *from,
                        unsigned char *to) {
    size_t position = (size_t)p->cfg.head_dim * 2, row = position * p->cfg.block_tokens;
    size_t data = position * fill;
    for (size_t at = 0; at < p->block_bytes; at += row) {
        memcpy(to + at, from + at, data);
        memset(to + at + data, 0, row - data);
    }
}

tl_status tl_kv_export(const tl_kv_pool *p, const uint32_t *ids, uint32_t n,
                       void *buf, size_t cap, size_t *written) {
    size_t bytes;
    tl_status status = tl_kv_export_bytes(&p->cfg, n, &bytes);
    if (status != TL_OK) return status;
    for (uint32_t i = 0; i < n; i++) {
        const record *block = any(p, ids[i]);
        if (!block) return TL_EINVAL;
        if (!block->fill) return tl_fail(TL_EINVAL, "block %u holds no data", ids[i]);
    }
    *written = bytes;
    if (cap < bytes) {
        return tl_fail(TL_EFULL, "the buffer has %zu bytes, %zu are needed", cap, bytes);
    }
    unsigned char *to = buf;
    put_header(&p->cfg, n, to);
    to += HEADER;
    for (uint32_t i = 0; i < n; i++, to += BLOCK + p->block_bytes) {
        const record *block = &p->blocks[ids[i]];
        put64(to, block->hash);
        put32(to + 8, block->fill);
        copy_filled(p, block->fill, payload(p, ids[i]), to + BLOCK);
    }
    put32(to, tl_crc32c(buf, bytes - TRAILER, 0));
    return TL_OK;
}

/* Check header and trailer, and that the blocks would fit this pool. The dimensions come from a
   stranger: they are compared, and nothing is computed with them. */
static tl_status check_frame(const tl_kv_pool *p, const unsigned char *bytes, size_t len) {
    if (len < HEADER + TRAILER || memcmp(bytes, magic, 4) != 0) {
        return tl_fail(TL_EFORMAT, "these %zu bytes are no envelope", len);
    }
    if (get16(bytes + 4) != VERSION || get16(bytes + 6) != TL_F16) {
        return tl_fail(TL_EFORMAT, "version %u, dtype %u: only 1 and 1 are there",
                       get16(bytes + 4), get16(bytes + 6));
    }
    if (tl_crc32c(bytes, len - TRAILER, 0) != get32(bytes + len - TRAILER)) {
        return tl_fail(TL_EFORMAT, "the CRC does not match: the bytes are damaged");
    }
    tl_kv_cfg cfg = {.block_tokens = get32(bytes + 12), .n_layers = get32(bytes + 16),
                     .n_kv_heads = get32(bytes + 20), .head_dim = get32(bytes + 24)};
    if (cfg.block_tokens != p->cfg.block_tokens || cfg.n_layers != p->cfg.n_layers
        || cfg.n_kv_heads != p->cfg.n_kv_heads || cfg.head_dim != p->cfg.head_dim) {
        return tl_fail(TL_ESHAPE, "blocks of %u, %u, %u, %u do not fit this pool",
                       cfg.block_tokens, cfg.n_layers, cfg.n_kv_heads, cfg.head_dim);
    }
    size_t wanted;
    if (!length(get32(bytes + 8), p->block_bytes, &wanted) || wanted != len) {
        return tl_fail(TL_EFORMAT, "%zu bytes do not match the header", len);
    }
    return TL_OK;
}

/* Check every block's own words. */
static tl_status check_blocks(const tl_kv_pool *p, uint32_t n, const unsigned char *from) {
    for (uint32_t i = 0; i < n; i++, from += BLOCK + p->block_bytes) {
        uint32_t fill = get32(from + 8);
        if (fill < 1 || fill > p->cfg.block_tokens) {
            return tl_fail(TL_EFORMAT, "block %u says %u of %u positions", i, fill,
                           p->cfg.block_tokens);
        }
        if (get64(from) && fill != p->cfg.block_tokens) {
            return tl_fail(TL_EFORMAT, "block %u is partial and has a hash", i);
        }
    }
    return TL_OK;
}

tl_status tl_kv_import(tl_kv_pool *p, const void *buf, size_t len, uint32_t *ids_out) {
    const unsigned char *from = buf;
    tl_status status = check_frame(p, from, len);
    if (status != TL_OK) return status;
    uint32_t n = get32(from + 8), holder;
    from += HEADER;
    if ((status = check_blocks(p, n, from)) != TL_OK) return status;
    if ((status = tl_kv_alloc(p, n, ids_out)) != TL_OK) return status;
    for (uint32_t i = 0; i < n; i++, from += BLOCK + p->block_bytes) {
        record *block = &p->blocks[ids_out[i]];
        uint64_t hash = get64(from);
        block->fill = get32(from + 8);
        copy_filled(p, block->fill, from + BLOCK, payload(p, ids_out[i]));
        if (hash && !tl_map_get(&p->index, hash, &holder)) { /* the first holder keeps it */
            block->hash = hash;
            tl_map_put(&p->index, hash, ids_out[i]);
        }
    }
    return TL_OK;
}
