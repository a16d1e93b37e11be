/* The pool as plain arrays: nothing is linked, what is needed is looked for, and of free blocks the
   last one goes first. Slow, and short. */
#include "tinyllm/kv_pool.h"

#include <string.h>

#include "tinyllm/alloc.h"

struct tl_kv_pool {
    tl_kv_cfg cfg;
    size_t side, payload; /* bytes of one K or V of a layer, and of a block */
    uint32_t *refs, *fills;
    uint64_t *names, *since; /* since: when it was cached, 0 while it is not */
    unsigned char *memory;
    uint64_t clock;
    uint32_t evictions;
};

static int times(size_t *a, size_t b) {
    if (b && *a > SIZE_MAX / b) return 0;
    *a *= b;
    return 1;
}

static int measure(const tl_kv_cfg *c, size_t *side, size_t *payload) {
    *side = 2;
    if (!times(side, c->n_kv_heads) || !times(side, c->block_tokens) || !times(side, c->head_dim)) {
        return 0;
    }
    *payload = *side;
    return times(payload, 2) && times(payload, c->n_layers);
}

tl_status tl_kv_pool_create(const tl_kv_cfg *cfg, tl_kv_pool **out) {
    size_t side, payload, all;
    if (cfg->dtype != TL_F16 || cfg->format != 1) {
        return tl_fail(TL_EUNSUPPORTED, "only f16 in format 1");
    }
    if (!cfg->n_blocks || !cfg->block_tokens || !cfg->n_layers || !cfg->n_kv_heads
        || !cfg->head_dim) {
        return tl_fail(TL_EINVAL, "a dimension is 0");
    }
    if (!measure(cfg, &side, &payload)) return tl_fail(TL_ENOMEM, "too large");
    all = payload;
    if (!times(&all, cfg->n_blocks)) return tl_fail(TL_ENOMEM, "too large");
    tl_kv_pool *p = tl_alloc(1, sizeof *p);
    if (!p) return tl_fail(TL_ENOMEM, "no memory");
    p->cfg = *cfg;
    p->side = side;
    p->payload = payload;
    p->refs = tl_alloc(cfg->n_blocks, sizeof *p->refs);
    p->fills = tl_alloc(cfg->n_blocks, sizeof *p->fills);
    p->names = tl_alloc(cfg->n_blocks, sizeof *p->names);
    p->since = tl_alloc(cfg->n_blocks, sizeof *p->since);
    p->memory = tl_alloc(all, 1);
    if (!p->refs || !p->fills || !p->names || !p->since || !p->memory) {
        tl_kv_pool_destroy(p);
        return tl_fail(TL_ENOMEM, "no memory");
    }
    *out = p;
    return TL_OK;
}

void tl_kv_pool_destroy(tl_kv_pool *p) {
    if (p) {
        tl_free(p->memory);
        tl_free(p->since);
        tl_free(p->names);
        tl_free(p->fills);
        tl_free(p->refs);
        tl_free(p);
    }
}

const tl_kv_cfg *tl_kv_pool_cfg(const tl_kv_pool *p) {
    return &p->cfg;
}

static int is_free(const tl_kv_pool *p, uint32_t id) {
    return p->refs[id] == 0 && p->since[id] == 0;
}

static tl_status must_be_held(const tl_kv_pool *p, uint32_t id) {
    if (id >= p->cfg.n_blocks) return tl_fail(TL_EINVAL, "no block %u", id);
    if (p->refs[id] == 0) return tl_fail(TL_EINVAL, "nobody holds block %u", id);
    return TL_OK;
}

void tl_kv_stats_get(const tl_kv_pool *p, tl_kv_stats *out) {
    tl_kv_stats stats = {0, 0, 0, p->evictions};
    for (uint32_t id = 0; id < p->cfg.n_blocks; id++) {
        if (p->refs[id]) stats.used++;
        else if (p->since[id]) stats.cached++;
        else stats.free++;
    }
    *out = stats;
}

/* A free block, or the one that was cached first, made free. One of them is there. */
static uint32_t next_free(tl_kv_pool *p) {
    uint32_t oldest = 0;
    for (uint32_t id = p->cfg.n_blocks; id-- > 0;) {
        if (is_free(p, id)) return id;
    }
    for (uint32_t id = 0; id < p->cfg.n_blocks; id++) {
        if (p->since[id] && (!p->since[oldest] || p->since[id] < p->since[oldest])) oldest = id;
    }
    p->since[oldest] = 0;
    p->names[oldest] = 0;
    p->evictions++;
    return oldest;
}

tl_status tl_kv_alloc(tl_kv_pool *p, uint32_t n, uint32_t *ids) {
    tl_kv_stats stats;
    tl_kv_stats_get(p, &stats);
    if (n > stats.free + stats.cached) return tl_fail(TL_EFULL, "there are not %u blocks", n);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = next_free(p);
        p->refs[ids[i]] = 1;
        p->fills[ids[i]] = 0;
    }
    return TL_OK;
}

void tl_kv_ref(tl_kv_pool *p, uint32_t id) {
    if (must_be_held(p, id) != TL_OK) return;
    if (p->refs[id] == UINT32_MAX) tl_fail(TL_EINVAL, "too many holders");
    else p->refs[id]++;
}

tl_status tl_kv_unref(tl_kv_pool *p, uint32_t id) {
    tl_status status = must_be_held(p, id);
    if (status != TL_OK) return status;
    if (--p->refs[id] == 0) {
        if (p->names[id]) p->since[id] = ++p->clock;
        else p->fills[id] = 0;
    }
    return TL_OK;
}

tl_status tl_kv_cow(tl_kv_pool *p, uint32_t id, uint32_t *out) {
    tl_status status = must_be_held(p, id);
    uint32_t copy = id;
    if (status != TL_OK) return status;
    if (p->refs[id] > 1 || p->names[id]) {
        if ((status = tl_kv_alloc(p, 1, &copy)) != TL_OK) return status;
        memcpy(p->memory + copy * p->payload, p->memory + id * p->payload, p->payload);
        p->fills[copy] = p->fills[id];
        tl_kv_unref(p, id);
    }
    *out = copy;
    return TL_OK;
}

tl_status tl_kv_set_fill(tl_kv_pool *p, uint32_t id, uint32_t n_tokens) {
    tl_status status = must_be_held(p, id);
    if (status != TL_OK) return status;
    if (p->names[id]) return tl_fail(TL_EINVAL, "block %u has a hash", id);
    if (n_tokens > p->cfg.block_tokens) return tl_fail(TL_EINVAL, "%u are too many", n_tokens);
    p->fills[id] = n_tokens;
    return TL_OK;
}

tl_status tl_kv_fill(const tl_kv_pool *p, uint32_t id, uint32_t *n_tokens) {
    if (id >= p->cfg.n_blocks) return tl_fail(TL_EINVAL, "no block %u", id);
    *n_tokens = is_free(p, id) ? 0 : p->fills[id];
    return TL_OK;
}

tl_status tl_kv_ref_count(const tl_kv_pool *p, uint32_t id, uint32_t *n) {
    if (id >= p->cfg.n_blocks) return tl_fail(TL_EINVAL, "no block %u", id);
    *n = p->refs[id];
    return TL_OK;
}

tl_status tl_kv_hash_of(const tl_kv_pool *p, uint32_t id, uint64_t *hash) {
    if (id >= p->cfg.n_blocks) return tl_fail(TL_EINVAL, "no block %u", id);
    *hash = p->names[id];
    return TL_OK;
}

void *tl_kv_block_ptr(const tl_kv_pool *p, uint32_t id, uint32_t layer, int is_v) {
    if (id < p->cfg.n_blocks && layer < p->cfg.n_layers && (is_v == 0 || is_v == 1)) {
        return p->memory + id * p->payload + 2 * layer * p->side + (is_v ? p->side : 0);
    }
    tl_fail(TL_EINVAL, "there is no such slab");
    return NULL;
}

size_t tl_kv_block_bytes(const tl_kv_pool *p) {
    return p->payload;
}

uint32_t tl_crc32c(const void *data, size_t n, uint32_t crc) {
    const unsigned char *bytes = data;
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78 : crc >> 1;
    }
    return ~crc;
}

uint64_t tl_kv_block_hash(uint64_t parent, const uint32_t *toks, uint32_t n) {
    uint64_t hash = 0xcbf29ce484222325;
    for (int i = 0; i < 8; i++) hash = (hash ^ (parent >> 8 * i & 0xff)) * 0x100000001b3;
    for (uint32_t t = 0; t < n; t++) {
        for (int i = 0; i < 4; i++) hash = (hash ^ (toks[t] >> 8 * i & 0xff)) * 0x100000001b3;
    }
    return hash ? hash : 1;
}

/* The block that has this hash, or n_blocks. */
static uint32_t holder(const tl_kv_pool *p, uint64_t hash) {
    uint32_t id = 0;
    while (id < p->cfg.n_blocks && (!hash || p->names[id] != hash)) id++;
    return id;
}

tl_status tl_kv_register(tl_kv_pool *p, uint32_t id, uint64_t hash) {
    tl_status status = must_be_held(p, id);
    if (status != TL_OK) return status;
    if (!hash || p->names[id] || p->fills[id] != p->cfg.block_tokens) {
        return tl_fail(TL_EINVAL, "block %u cannot have this hash", id);
    }
    if (holder(p, hash) < p->cfg.n_blocks) return tl_fail(TL_EBUSY, "the hash is taken");
    p->names[id] = hash;
    return TL_OK;
}

tl_status tl_kv_lookup(tl_kv_pool *p, uint64_t hash, uint32_t *id) {
    uint32_t found = holder(p, hash);
    if (found == p->cfg.n_blocks) return TL_ENOTFOUND;
    if (p->refs[found] == UINT32_MAX) return tl_fail(TL_EINVAL, "too many holders");
    p->refs[found]++;
    p->since[found] = 0;
    *id = found;
    return TL_OK;
}

static unsigned char *put(unsigned char *to, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++) *to++ = (unsigned char)(number >> 8 * i);
    return to;
}

static uint64_t get(const unsigned char *from, int bytes) {
    uint64_t number = 0;
    while (bytes--) number = number << 8 | from[bytes];
    return number;
}

static int envelope(uint32_t n, size_t payload, size_t *bytes) {
    if (payload > SIZE_MAX - 12) return 0;
    *bytes = payload + 12;
    if (!times(bytes, n) || *bytes > SIZE_MAX - 32) return 0;
    *bytes += 32;
    return 1;
}

tl_status tl_kv_export_bytes(const tl_kv_cfg *cfg, uint32_t n, size_t *bytes) {
    size_t side, payload, all;
    if (!measure(cfg, &side, &payload) || !envelope(n, payload, &all)) {
        return tl_fail(TL_EINVAL, "no memory is as long as that");
    }
    *bytes = all;
    return TL_OK;
}

/* Write to `to` what a block with this fill shows of `from`. */
static void show(const tl_kv_pool *p, uint32_t fill, const unsigned char *from,
                 unsigned char *to) {
    size_t position = 2 * (size_t)p->cfg.head_dim;
    for (size_t at = 0; at < p->payload; at++) {
        to[at] = at / position % p->cfg.block_tokens < fill ? from[at] : 0;
    }
}

tl_status tl_kv_export(const tl_kv_pool *p, const uint32_t *ids, uint32_t n,
                       void *buf, size_t cap, size_t *written) {
    unsigned char *to = buf;
    tl_status status = tl_kv_export_bytes(&p->cfg, n, written);
    if (status != TL_OK) return status;
    for (uint32_t i = 0; i < n; i++) {
        if (ids[i] >= p->cfg.n_blocks || is_free(p, ids[i]) || !p->fills[ids[i]]) {
            return tl_fail(TL_EINVAL, "block %u has nothing to export", ids[i]);
        }
    }
    if (cap < *written) return tl_fail(TL_EFULL, "%zu bytes are needed", *written);
    to = put(to, 0x564b4c54, 4);
    to = put(to, 0x00010001, 4);
    to = put(to, n, 4);
    to = put(to, p->cfg.block_tokens, 4);
    to = put(to, p->cfg.n_layers, 4);
    to = put(to, p->cfg.n_kv_heads, 4);
    to = put(to, p->cfg.head_dim, 4);
    for (uint32_t i = 0; i < n; i++) {
        to = put(to, p->names[ids[i]], 8);
        to = put(to, p->fills[ids[i]], 4);
        show(p, p->fills[ids[i]], p->memory + ids[i] * p->payload, to);
        to += p->payload;
    }
    put(to, tl_crc32c(buf, *written - 4, 0), 4);
    return TL_OK;
}

tl_status tl_kv_import(tl_kv_pool *p, const void *buf, size_t len, uint32_t *ids_out) {
    const unsigned char *from = buf;
    if (len < 32 || get(from, 4) != 0x564b4c54 || get(from + 4, 4) != 0x00010001) {
        return tl_fail(TL_EFORMAT, "no envelope");
    }
    uint32_t n = (uint32_t)get(from + 8, 4);
    tl_kv_cfg c = p->cfg;
    c.block_tokens = (uint32_t)get(from + 12, 4);
    c.n_layers = (uint32_t)get(from + 16, 4);
    c.n_kv_heads = (uint32_t)get(from + 20, 4);
    c.head_dim = (uint32_t)get(from + 24, 4);
    size_t payload = p->payload, bytes;
    if (tl_crc32c(from, len - 4, 0) != get(from + len - 4, 4)) {
        return tl_fail(TL_EFORMAT, "a damaged envelope");
    }
    if (memcmp(&c, &p->cfg, sizeof c) != 0) return tl_fail(TL_ESHAPE, "another shape");
    if (!envelope(n, payload, &bytes) || bytes != len) {
        return tl_fail(TL_EFORMAT, "an envelope of another length");
    }
    from += 28;
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *block = from + i * (payload + 12);
        uint64_t fill = get(block + 8, 4);
        if (!fill || fill > c.block_tokens || (get(block, 8) && fill < c.block_tokens)) {
            return tl_fail(TL_EFORMAT, "block %u breaks a rule", i);
        }
    }
    tl_status status = tl_kv_alloc(p, n, ids_out);
    for (uint32_t i = 0; status == TL_OK && i < n; i++, from += payload + 12) {
        uint32_t id = ids_out[i];
        uint64_t hash = get(from, 8);
        p->fills[id] = (uint32_t)get(from + 8, 4);
        show(p, p->fills[id], from + 12, p->memory + id * payload);
        if (holder(p, hash) == p->cfg.n_blocks) p->names[id] = hash;
    }
    return status;
}
