#include "counting.h"

#include <stdlib.h>

#include "tinyllm/alloc.h"

enum { MOST = 4096 }; /* pieces that may live at once; a pool has a handful */

typedef struct {
    void *memory;
    size_t bytes;
    const char *file;
    int line;
} piece;

static piece pieces[MOST];
static uint32_t n_pieces, asked, until_failure;

static void *count(void *context, size_t bytes, const char *file, int line) {
    (void)context;
    asked++;
    if (until_failure && --until_failure == 0) return NULL;
    void *memory = n_pieces < MOST ? calloc(1, bytes) : NULL;
    if (memory) pieces[n_pieces++] = (piece){memory, bytes, file, line};
    return memory;
}

/* What is not ours is freed all the same: a sanitizer then says where that came from. */
static void discount(void *context, void *memory) {
    (void)context;
    for (uint32_t i = 0; i < n_pieces; i++) {
        if (pieces[i].memory == memory) {
            for (uint32_t j = i + 1; j < n_pieces; j++) pieces[j - 1] = pieces[j];
            n_pieces--;
            break;
        }
    }
    free(memory);
}

void counting_begin(void) {
    static const tl_allocator counting = {count, discount, NULL};
    tl_allocator_set(&counting);
}

void counting_fail(uint32_t n) {
    until_failure = n;
}

uint32_t counting_asked(void) {
    return asked;
}

counting_living counting_live(void) {
    counting_living live = {n_pieces, 0, "", 0};
    for (uint32_t i = 0; i < n_pieces; i++) live.bytes += pieces[i].bytes;
    if (n_pieces) {
        live.file = pieces[0].file;
        live.line = pieces[0].line;
    }
    return live;
}
