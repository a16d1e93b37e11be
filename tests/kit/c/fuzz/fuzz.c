/* Bytes as calls: a pool is driven by them and held against a model that knows only the contract.

   Each byte is a call, the next ones are its arguments. Between calls the counts of the pool and
   of the model must agree; an envelope of what it holds, damaged by the bytes, is imported.
   libFuzzer calls LLVMFuzzerTestOneInput; without it `runs.c` does, with bytes from a seed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tinyllm/kv_pool.h"

enum { N = 6, B = 2, FREE = 0 };
static const tl_kv_cfg cfg = {N, B, 1, 1, 1, TL_F16, TL_KV_FORMAT};

/* The model: who holds a block, how full it is, its name, and when it was cached. */
typedef struct {
    uint32_t refs[N], fill[N], evictions;
    uint64_t name[N], since[N], clock;
} model;

static const uint8_t *next, *end;

static uint8_t byte(void) {
    return next < end ? *next++ : 0;
}

static void demand(int condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "the pool and the model differ: %s\n", what);
    abort();
}

static uint32_t count(const model *m, int cached) {
    uint32_t found = 0;
    for (int i = 0; i < N; i++) found += !m->refs[i] && (m->since[i] != 0) == cached;
    return found;
}

static int holder(const model *m, uint64_t name) {
    for (int i = 0; name && i < N; i++) {
        if (m->name[i] == name) return i;
    }
    return -1;
}

/* How many cached blocks are older than this one. */
static uint32_t older(const model *m, uint32_t id) {
    uint32_t found = 0;
    for (int i = 0; i < N; i++) found += m->since[i] && m->since[i] < m->since[id];
    return found;
}

/* Take in the blocks that one call handed out: all that are free, then the oldest cached ones, in
   whatever order it names them. */
static void took(model *m, const uint32_t *ids, uint32_t n) {
    uint32_t n_free = count(m, 0), evicted = n > n_free ? n - n_free : 0;
    for (uint32_t i = 0; i < n; i++) {
        demand(ids[i] < N && !m->refs[ids[i]], "a block that somebody holds was handed out");
        demand(!m->since[ids[i]] || older(m, ids[i]) < evicted, "the wrong block was evicted");
    }
    for (uint32_t i = 0; i < n; i++) {
        demand(!m->refs[ids[i]], "a block was handed out twice");
        m->name[ids[i]] = m->since[ids[i]] = 0;
        m->refs[ids[i]] = 1;
        m->fill[ids[i]] = 0;
    }
    m->evictions += evicted;
}

static void gave_back(model *m, uint32_t id) {
    if (--m->refs[id]) return;
    if (m->name[id]) m->since[id] = ++m->clock;
    else m->fill[id] = 0;
}

static void do_alloc(tl_kv_pool *p, model *m) {
    uint32_t n = byte() % (N + 2), ids[N + 2];
    uint32_t room = count(m, 0) + count(m, 1);
    tl_status status = tl_kv_alloc(p, n, ids);
    demand(status == (n > room ? TL_EFULL : TL_OK), "the status of alloc");
    if (status == TL_OK) took(m, ids, n);
}

static void do_unref(tl_kv_pool *p, model *m, uint32_t id) {
    int is_held = id < N && m->refs[id];
    demand(tl_kv_unref(p, id) == (is_held ? TL_OK : TL_EINVAL), "the status of unref");
    if (is_held) gave_back(m, id);
}

static void do_ref(tl_kv_pool *p, model *m, uint32_t id) {
    tl_error_clear();
    tl_kv_ref(p, id);
    int is_held = id < N && m->refs[id];
    demand((tl_error_status() == TL_OK) == is_held, "whether ref fails");
    if (is_held) m->refs[id]++;
}

static void do_cow(tl_kv_pool *p, model *m, uint32_t id) {
    uint32_t copy = N;
    tl_status status = tl_kv_cow(p, id, &copy);
    if (id >= N || !m->refs[id]) {
        demand(status == TL_EINVAL, "the status of cow");
    } else if (m->refs[id] == 1 && !m->name[id]) {
        demand(status == TL_OK && copy == id, "cow of a block of one's own");
    } else if (count(m, 0) + count(m, 1) == 0) {
        demand(status == TL_EFULL, "the status of cow in a full pool");
    } else {
        demand(status == TL_OK, "the status of cow");
        took(m, &copy, 1);
        m->fill[copy] = m->fill[id];
        gave_back(m, id);
    }
}

static void do_set_fill(tl_kv_pool *p, model *m, uint32_t id) {
    uint32_t n = byte() % (B + 2);
    int is_right = id < N && m->refs[id] && !m->name[id] && n <= B;
    demand(tl_kv_set_fill(p, id, n) == (is_right ? TL_OK : TL_EINVAL), "the status of set_fill");
    if (is_right) m->fill[id] = n;
}

static void do_register(tl_kv_pool *p, model *m, uint32_t id) {
    uint64_t name = byte() % 8;
    int is_right = id < N && m->refs[id] && !m->name[id] && m->fill[id] == B && name;
    tl_status want = !is_right ? TL_EINVAL : holder(m, name) >= 0 ? TL_EBUSY : TL_OK;
    demand(tl_kv_register(p, id, name) == want, "the status of register");
    if (want == TL_OK) m->name[id] = name;
}

static void do_lookup(tl_kv_pool *p, model *m) {
    uint64_t name = byte() % 8;
    int found = holder(m, name);
    uint32_t id = N;
    demand(tl_kv_lookup(p, name, &id) == (found < 0 ? TL_ENOTFOUND : TL_OK), "status of lookup");
    if (found < 0) return;
    demand(id == (uint32_t)found, "the block that lookup finds");
    m->refs[id]++;
    m->since[id] = 0;
}

/* Export some blocks, damage the envelope, give it a right checksum, and import what it is now. */
static void do_transfer(tl_kv_pool *p, model *m) {
    uint32_t ids[3], n = 0, taken[N];
    for (uint32_t i = 0; i < N && n < 3; i++) {
        if (m->fill[i]) ids[n++] = i;
    }
    size_t size;
    unsigned char *envelope;
    demand(tl_kv_export_bytes(&cfg, n, &size) == TL_OK, "the status of export_bytes");
    if (!(envelope = malloc(size))) return;
    demand(tl_kv_export(p, ids, n, envelope, size, &size) == TL_OK, "the status of export");
    for (int i = byte() % 4; i > 0; i--) envelope[byte() % size] ^= byte();
    size_t cut = byte() % 8 ? size : byte() % (size + 1);
    if (cut >= 4) {
        uint32_t crc = tl_crc32c(envelope, cut - 4, 0);
        for (int i = 0; i < 4; i++) envelope[cut - 4 + i] = (unsigned char)(crc >> 8 * i);
    }
    if (tl_kv_import(p, envelope, cut, taken) == TL_OK) {
        uint32_t many = envelope[8];
        demand(many <= N, "the blocks of an import that was accepted");
        took(m, taken, many);
        for (uint32_t i = 0; i < many; i++) {
            tl_kv_fill(p, taken[i], &m->fill[taken[i]]);
            tl_kv_hash_of(p, taken[i], &m->name[taken[i]]);
        }
    }
    free(envelope);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tl_kv_pool *p;
    model m = {0};
    next = data;
    end = data + size;
    if (tl_kv_pool_create(&cfg, &p) != TL_OK) return 0;
    while (next < end) {
        uint8_t call = byte();
        uint32_t id = call / 8 % (N + 1);
        switch (call % 8) {
        case 0: do_alloc(p, &m); break;
        case 1: do_unref(p, &m, id); break;
        case 2: do_ref(p, &m, id); break;
        case 3: do_cow(p, &m, id); break;
        case 4: do_set_fill(p, &m, id); break;
        case 5: do_register(p, &m, id); break;
        case 6: do_lookup(p, &m); break;
        default: do_transfer(p, &m);
        }
        tl_kv_stats stats;
        tl_kv_stats_get(p, &stats);
        demand(stats.free == count(&m, 0) && stats.cached == count(&m, 1)
               && stats.used == N - stats.free - stats.cached && stats.evictions == m.evictions,
               "the counts");
    }
    tl_kv_pool_destroy(p);
    return 0;
}
