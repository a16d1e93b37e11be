/* The pool as records linked by their ids: the free ones, the queue of the cached ones, and in an
   index of its own those that fall into one bucket. */
#include "tinyllm/kv_pool.h"

#include <stdbool.h>
#include <string.h>

#include "tinyllm/alloc.h"
#include "tinyllm/fnv.h"

#define NIL UINT32_MAX /* where a list ends */

enum { FREE, USED, CACHED };

typedef struct {
    uint64_t hash;
    uint32_t refs, fill;
    uint32_t prev, next; /* in the free list (next alone), or in the queue of the cached */
    uint32_t chain;      /* the next block in the same bucket of the index */
    uint8_t state;
} rec;

struct tl_kv_pool {
    tl_kv_cfg cfg;
    size_t slab_bytes; /* H * B * D * 2 */
    size_t block_bytes;
    rec *recs;
    uint32_t *buckets;
    size_t mask;
    unsigned char *slab;
    uint32_t free_head, n_free;
    uint32_t old, young, n_cached; /* the queue */
    uint32_t evictions;
};

static bool mul(size_t a, size_t b, size_t *out) {
    if (b != 0 && a > SIZE_MAX / b) return false;
    *out = a * b;
    return true;
}

/* The bytes of one layer's K, and of a block; false if they fit no size_t. */
static bool sizes(const tl_kv_cfg *c, size_t *slab, size_t *block) {
    size_t n;
    if (!mul(c->n_kv_heads, c->block_tokens, &n)) return false;
    if (!mul(n, c->head_dim, &n)) return false;
    if (!mul(n, 2, &n)) return false;
    *slab = n;
    if (!mul(n, 2, &n)) return false;
    return mul(n, c->n_layers, block);
}

tl_status tl_kv_pool_create(const tl_kv_cfg *cfg, tl_kv_pool **out) {
    if (cfg->dtype != TL_F16) return tl_fail(TL_EUNSUPPORTED, "dtype %d", (int)cfg->dtype);
    if (cfg->format != TL_KV_FORMAT) return tl_fail(TL_EUNSUPPORTED, "format %u", cfg->format);
    if (!cfg->n_blocks || !cfg->block_tokens || !cfg->n_layers || !cfg->n_kv_heads
        || !cfg->head_dim) {
        return tl_fail(TL_EINVAL, "a dimension is 0");
    }
    size_t slab, block, all;
    if (!sizes(cfg, &slab, &block) || !mul(block, cfg->n_blocks, &all)) {
        return tl_fail(TL_ENOMEM, "the sizes fit no size_t");
    }
    size_t buckets = 1;
    while (buckets < cfg->n_blocks) buckets *= 2;

    tl_kv_pool *p = tl_alloc(1, sizeof *p);
    if (!p) return tl_fail(TL_ENOMEM, "no memory for a pool");
    p->cfg = *cfg;
    p->slab_bytes = slab;
    p->block_bytes = block;
    p->mask = buckets - 1;
    p->recs = tl_alloc(cfg->n_blocks, sizeof *p->recs);
    p->buckets = tl_alloc(buckets, sizeof *p->buckets);
    p->slab = tl_alloc(1, all);
    if (!p->recs || !p->buckets || !p->slab) {
        tl_kv_pool_destroy(p);
        return tl_fail(TL_ENOMEM, "no memory for %u blocks", cfg->n_blocks);
    }
    for (size_t i = 0; i < buckets; i++) p->buckets[i] = NIL;
    for (uint32_t i = 0; i < cfg->n_blocks; i++) {
        p->recs[i].prev = p->recs[i].chain = NIL;
        p->recs[i].next = i + 1 < cfg->n_blocks ? i + 1 : NIL;
    }
    p->free_head = 0;
    p->n_free = cfg->n_blocks;
    p->old = p->young = NIL;
    *out = p;
    return TL_OK;
}

void tl_kv_pool_destroy(tl_kv_pool *p) {
    if (!p) return;
    tl_free(p->slab);
    tl_free(p->buckets);
    tl_free(p->recs);
    tl_free(p);
}

const tl_kv_cfg *tl_kv_pool_cfg(const tl_kv_pool *p) {
    return &p->cfg;
}

static tl_status no_block(uint32_t id) {
    return tl_fail(TL_EINVAL, "there is no block %u", id);
}

/* The record of a held block; NULL, with the slot written, if it is none. */
static rec *held(tl_kv_pool *p, uint32_t id) {
    if (id >= p->cfg.n_blocks) {
        no_block(id);
        return NULL;
    }
    if (p->recs[id].state != USED) {
        tl_fail(TL_EINVAL, "nobody holds block %u", id);
        return NULL;
    }
    return &p->recs[id];
}

static void to_free(tl_kv_pool *p, uint32_t id) {
    rec *r = &p->recs[id];
    r->state = FREE;
    r->refs = r->fill = 0;
    r->next = p->free_head;
    p->free_head = id;
    p->n_free++;
}

/* The index: buckets of ids, chained through the records. */
static uint32_t *bucket(const tl_kv_pool *p, uint64_t hash) {
    return &p->buckets[(size_t)(hash ^ hash >> 29) & p->mask];
}

static uint32_t find(const tl_kv_pool *p, uint64_t hash) {
    uint32_t id = *bucket(p, hash);
    while (id != NIL && p->recs[id].hash != hash) id = p->recs[id].chain;
    return id;
}

static void forget(tl_kv_pool *p, uint32_t id) {
    rec *r = &p->recs[id];
    uint32_t *at = bucket(p, r->hash);
    while (*at != id) at = &p->recs[*at].chain;
    *at = r->chain;
    r->chain = NIL;
    r->hash = 0;
}

/* The queue of cached blocks, oldest first. */
static void queue_push(tl_kv_pool *p, uint32_t id) {
    rec *r = &p->recs[id];
    r->state = CACHED;
    r->prev = p->young;
    r->next = NIL;
    if (p->young != NIL) p->recs[p->young].next = id;
    else p->old = id;
    p->young = id;
    p->n_cached++;
}

static void queue_unlink(tl_kv_pool *p, uint32_t id) {
    rec *r = &p->recs[id];
    if (r->prev != NIL) p->recs[r->prev].next = r->next;
    else p->old = r->next;
    if (r->next != NIL) p->recs[r->next].prev = r->prev;
    else p->young = r->prev;
    r->prev = r->next = NIL;
    p->n_cached--;
}

/* A free block, or else the oldest cached one, now held once. There must be one. */
static uint32_t take(tl_kv_pool *p) {
    if (p->free_head == NIL) {
        uint32_t id = p->old;
        queue_unlink(p, id);
        forget(p, id);
        to_free(p, id);
        p->evictions++;
    }
    uint32_t id = p->free_head;
    rec *r = &p->recs[id];
    p->free_head = r->next;
    p->n_free--;
    r->next = NIL;
    r->state = USED;
    r->refs = 1;
    r->fill = 0;
    return id;
}

tl_status tl_kv_alloc(tl_kv_pool *p, uint32_t n, uint32_t *ids) {
    if (n > p->n_free + p->n_cached) {
        return tl_fail(TL_EFULL, "%u blocks asked for, there is room for %u", n,
                       p->n_free + p->n_cached);
    }
    for (uint32_t i = 0; i < n; i++) ids[i] = take(p);
    return TL_OK;
}

void tl_kv_ref(tl_kv_pool *p, uint32_t id) {
    rec *r = held(p, id);
    if (!r) return;
    if (r->refs == UINT32_MAX) {
        tl_fail(TL_EINVAL, "block %u has as many holders as can be counted", id);
        return;
    }
    r->refs++;
}

tl_status tl_kv_unref(tl_kv_pool *p, uint32_t id) {
    rec *r = held(p, id);
    if (!r) return TL_EINVAL;
    if (--r->refs > 0) return TL_OK;
    if (r->hash) queue_push(p, id);
    else to_free(p, id);
    return TL_OK;
}

tl_status tl_kv_cow(tl_kv_pool *p, uint32_t id, uint32_t *out) {
    rec *r = held(p, id);
    if (!r) return TL_EINVAL;
    if (r->refs == 1 && r->hash == 0) {
        *out = id;
        return TL_OK;
    }
    uint32_t copy;
    tl_status s = tl_kv_alloc(p, 1, &copy);
    if (s != TL_OK) return s;
    memcpy(p->slab + copy * p->block_bytes, p->slab + id * p->block_bytes, p->block_bytes);
    p->recs[copy].fill = r->fill;
    tl_kv_unref(p, id);
    *out = copy;
    return TL_OK;
}

tl_status tl_kv_set_fill(tl_kv_pool *p, uint32_t id, uint32_t n_tokens) {
    rec *r = held(p, id);
    if (!r) return TL_EINVAL;
    if (r->hash) return tl_fail(TL_EINVAL, "block %u has a hash, its fill is fixed", id);
    if (n_tokens > p->cfg.block_tokens) {
        return tl_fail(TL_EINVAL, "a block has %u positions, not %u", p->cfg.block_tokens,
                       n_tokens);
    }
    r->fill = n_tokens;
    return TL_OK;
}

tl_status tl_kv_fill(const tl_kv_pool *p, uint32_t id, uint32_t *n_tokens) {
    if (id >= p->cfg.n_blocks) return no_block(id);
    *n_tokens = p->recs[id].fill;
    return TL_OK;
}

tl_status tl_kv_ref_count(const tl_kv_pool *p, uint32_t id, uint32_t *n) {
    if (id >= p->cfg.n_blocks) return no_block(id);
    *n = p->recs[id].refs;
    return TL_OK;
}

void *tl_kv_block_ptr(const tl_kv_pool *p, uint32_t id, uint32_t layer, int is_v) {
    if (id >= p->cfg.n_blocks) {
        no_block(id);
        return NULL;
    }
    if (layer >= p->cfg.n_layers || (is_v != 0 && is_v != 1)) {
        tl_fail(TL_EINVAL, "there is no layer %u, or is_v %d is not 0 or 1", layer, is_v);
        return NULL;
    }
    return p->slab + id * p->block_bytes + ((size_t)layer * 2 + (size_t)is_v) * p->slab_bytes;
}

size_t tl_kv_block_bytes(const tl_kv_pool *p) {
    return p->block_bytes;
}

void tl_kv_stats_get(const tl_kv_pool *p, tl_kv_stats *out) {
    out->free = p->n_free;
    out->cached = p->n_cached;
    out->used = p->cfg.n_blocks - p->n_free - p->n_cached;
    out->evictions = p->evictions;
}

uint32_t tl_crc32c(const void *data, size_t n, uint32_t crc) {
    const unsigned char *b = data;
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= b[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (UINT32_C(0x82F63B78) & (0 - (crc & 1)));
    }
    return ~crc;
}

static void put16(unsigned char *b, uint32_t v) {
    b[0] = (unsigned char)v;
    b[1] = (unsigned char)(v >> 8);
}

static void put32(unsigned char *b, uint32_t v) {
    put16(b, v);
    put16(b + 2, v >> 16);
}

static void put64(unsigned char *b, uint64_t v) {
    put32(b, (uint32_t)v);
    put32(b + 4, (uint32_t)(v >> 32));
}

uint64_t tl_kv_block_hash(uint64_t parent, const uint32_t *toks, uint32_t n) {
    unsigned char b[8];
    put64(b, parent);
    uint64_t h = tl_fnv1a64(b, 8, TL_FNV_OFFSET);
    for (uint32_t i = 0; i < n; i++) {
        put32(b, toks[i]);
        h = tl_fnv1a64(b, 4, h);
    }
    return h ? h : 1;
}

tl_status tl_kv_register(tl_kv_pool *p, uint32_t id, uint64_t hash) {
    rec *r = held(p, id);
    if (!r) return TL_EINVAL;
    if (hash == 0) return tl_fail(TL_EINVAL, "0 is no hash");
    if (r->hash) return tl_fail(TL_EINVAL, "block %u has a hash", id);
    if (r->fill != p->cfg.block_tokens) return tl_fail(TL_EINVAL, "block %u is not full", id);
    if (find(p, hash) != NIL) return tl_fail(TL_EBUSY, "block %u has this hash", find(p, hash));
    uint32_t *b = bucket(p, hash);
    r->hash = hash;
    r->chain = *b;
    *b = id;
    return TL_OK;
}

tl_status tl_kv_lookup(tl_kv_pool *p, uint64_t hash, uint32_t *id) {
    uint32_t found = hash ? find(p, hash) : NIL;
    if (found == NIL) return TL_ENOTFOUND;
    rec *r = &p->recs[found];
    if (r->refs == UINT32_MAX) {
        return tl_fail(TL_EINVAL, "block %u has as many holders as can be counted", found);
    }
    if (r->state == CACHED) {
        queue_unlink(p, found);
        r->state = USED;
    }
    r->refs++;
    *id = found;
    return TL_OK;
}

tl_status tl_kv_hash_of(const tl_kv_pool *p, uint32_t id, uint64_t *hash) {
    if (id >= p->cfg.n_blocks) return no_block(id);
    *hash = p->recs[id].hash;
    return TL_OK;
}

tl_status tl_kv_export_bytes(const tl_kv_cfg *cfg, uint32_t n, size_t *bytes) {
    size_t slab, block = 0, all = 0;
    if (n > 0 && (!sizes(cfg, &slab, &block) || block > SIZE_MAX - 12
                  || !mul(block + 12, n, &all) || all > SIZE_MAX - 32)) {
        return tl_fail(TL_EINVAL, "an envelope of %u blocks is more than a size_t can say", n);
    }
    *bytes = all + 32;
    return TL_OK;
}

static uint32_t get16(const unsigned char *b) {
    return (uint32_t)b[0] | (uint32_t)b[1] << 8;
}

static uint32_t get32(const unsigned char *b) {
    return get16(b) | get16(b + 2) << 16;
}

static uint64_t get64(const unsigned char *b) {
    return (uint64_t)get32(b) | (uint64_t)get32(b + 4) << 32;
}

/* Copy a block's payload: of each head the first `fill` positions, and zeros for the rest. */
static void copy_rows(const tl_kv_pool *p, unsigned char *to, const unsigned char *from,
                      uint32_t fill) {
    size_t row = (size_t)p->cfg.head_dim * 2;
    size_t head = row * p->cfg.block_tokens, data = row * fill;
    for (size_t at = 0; at < p->block_bytes; at += head) {
        memcpy(to + at, from + at, data);
        memset(to + at + data, 0, head - data);
    }
}

tl_status tl_kv_export(const tl_kv_pool *p, const uint32_t *ids, uint32_t n,
                       void *buf, size_t cap, size_t *written) {
    size_t need;
    tl_status s = tl_kv_export_bytes(&p->cfg, n, &need);
    if (s != TL_OK) return s;
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] >= p->cfg.n_blocks) return no_block(ids[i]);
        if (p->recs[ids[i]].fill == 0) {
            return tl_fail(TL_EINVAL, "block %u holds no data", ids[i]);
        }
    }
    if (cap < need) {
        *written = need;
        return tl_fail(TL_EFULL, "the envelope takes %zu bytes, there is room for %zu", need, cap);
    }
    unsigned char *b = buf;
    memcpy(b, "TLKV", 4);
    put16(b + 4, 1);
    put16(b + 6, TL_F16);
    put32(b + 8, n);
    put32(b + 12, p->cfg.block_tokens);
    put32(b + 16, p->cfg.n_layers);
    put32(b + 20, p->cfg.n_kv_heads);
    put32(b + 24, p->cfg.head_dim);
    b += 28;
    for (uint32_t i = 0; i < n; i++) {
        const rec *r = &p->recs[ids[i]];
        put64(b, r->hash);
        put32(b + 8, r->fill);
        copy_rows(p, b + 12, p->slab + ids[i] * p->block_bytes, r->fill);
        b += 12 + p->block_bytes;
    }
    put32(b, tl_crc32c(buf, need - 4, 0));
    *written = need;
    return TL_OK;
}

tl_status tl_kv_import(tl_kv_pool *p, const void *buf, size_t len, uint32_t *ids_out) {
    const unsigned char *b = buf;
    const tl_kv_cfg *c = &p->cfg;
    if (len < 32) return tl_fail(TL_EFORMAT, "%zu bytes are no envelope", len);
    if (memcmp(b, "TLKV", 4) != 0) return tl_fail(TL_EFORMAT, "no magic TLKV");
    if (get16(b + 4) != 1 || get16(b + 6) != TL_F16) {
        return tl_fail(TL_EFORMAT, "version %u, dtype %u", get16(b + 4), get16(b + 6));
    }
    uint32_t n = get32(b + 8);
    if (get32(b + 12) != c->block_tokens || get32(b + 16) != c->n_layers
        || get32(b + 20) != c->n_kv_heads || get32(b + 24) != c->head_dim) {
        return tl_fail(TL_ESHAPE, "blocks of other dimensions");
    }
    if (get32(b + len - 4) != tl_crc32c(b, len - 4, 0)) {
        return tl_fail(TL_EFORMAT, "the checksum is wrong");
    }
    size_t step = 12 + p->block_bytes, all;
    if (!mul(n, step, &all) || all != len - 32) {
        return tl_fail(TL_EFORMAT, "%zu bytes are not %u blocks", len, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *block = b + 28 + i * step;
        uint32_t fill = get32(block + 8);
        if (fill < 1 || fill > c->block_tokens || (get64(block) && fill != c->block_tokens)) {
            return tl_fail(TL_EFORMAT, "block %u of the envelope has %u positions", i, fill);
        }
    }
    tl_status s = tl_kv_alloc(p, n, ids_out);
    if (s != TL_OK) return s;
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *block = b + 28 + i * step;
        uint32_t id = ids_out[i], fill = get32(block + 8);
        uint64_t hash = get64(block);
        copy_rows(p, p->slab + id * p->block_bytes, block + 12, fill);
        p->recs[id].fill = fill;
        if (hash && find(p, hash) == NIL) tl_kv_register(p, id, hash);
    }
    return TL_OK;
}
