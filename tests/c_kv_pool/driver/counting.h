/* An allocator that knows what lives, and that fails when it is told to. */
#ifndef COUNTING_H
#define COUNTING_H

#include <stddef.h>
#include <stdint.h>

/* Count everything that tl_alloc gives out from now on. */
void counting_begin(void);

/* Let the n-th allocation from now on fail, once; 0: none. */
void counting_fail(uint32_t n);

/* How often memory was asked for, since the beginning. */
uint32_t counting_asked(void);

/* What lives: how many pieces, of how many bytes, and where the oldest of them was asked for. */
typedef struct {
    uint32_t pieces;
    size_t bytes;
    const char *file;
    int line;
} counting_living;
counting_living counting_live(void);

#endif
