/* How fast the reference is, called from C: operations a second, gigabytes a second. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "crc32c.h"
#include "tinyllm/kv_pool.h"

enum { BLOCKS = 4096, ROUNDS = 5 };
static const uint32_t names = 500000;
static const size_t message = 64 << 20;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* alloc, set_fill, register, ref, unref, unref, lookup, unref: with an eviction each. */
static double operations(tl_kv_pool *p, uint64_t first) {
    double begun = now();
    for (uint64_t name = first; name < first + names; name++) {
        uint32_t id, found;
        if (tl_kv_alloc(p, 1, &id) != TL_OK) abort();
        tl_kv_set_fill(p, id, 1);
        tl_kv_register(p, id, name);
        tl_kv_ref(p, id);
        tl_kv_unref(p, id);
        tl_kv_unref(p, id);
        if (tl_kv_lookup(p, name, &found) != TL_OK || found != id) abort();
        tl_kv_unref(p, id);
    }
    return 8.0 * names / (now() - begun);
}

static double checksum(uint32_t (*move)(uint32_t, const unsigned char *, size_t),
                       const unsigned char *bytes) {
    double begun = now();
    volatile uint32_t state = move(0xFFFFFFFF, bytes, message);
    (void)state;
    return (double)message / (now() - begun);
}

static double best(double a, double b) {
    return a > b ? a : b;
}

int main(void) {
    tl_kv_cfg cfg = {BLOCKS, 1, 1, 1, 1, TL_F16, TL_KV_FORMAT};
    tl_kv_pool *p;
    unsigned char *bytes = malloc(message);
    if (!bytes || tl_kv_pool_create(&cfg, &p) != TL_OK) return 1;
    for (size_t i = 0; i < message; i++) bytes[i] = (unsigned char)(i * 7 + (i >> 8));
    double pool = 0, fast = 0, plain = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pool = best(pool, operations(p, 1 + (uint64_t)round * names));
        fast = best(fast, checksum(crc32c_move, bytes));
        plain = best(plain, checksum(crc32c_by_tables, bytes));
    }
    printf("%.1f %.2f %.2f %d\n", pool / 1e6, fast / 1e9, plain / 1e9, crc32c_in_hardware());
    free(bytes);
    tl_kv_pool_destroy(p);
    return 0;
}
