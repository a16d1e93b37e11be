/* An allocator that knows what lives, and that fails when it is told to; and what of a program's
   memory does not come from it. */
#ifndef COUNTING_H
#define COUNTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether memory from elsewhere is seen, too: a sanitizer tells of it. */
#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif

/* Count everything that tl_alloc gives out from now on. Where a sanitizer ends the process, tell
   on stderr what lives, a line each: "== piece ADDRESS BYTES FILE:LINE". */
void counting_begin(void);

/* Let the n-th allocation from now on fail, once; 0: none. */
void counting_fail(uint32_t n);

/* How often memory was asked for, since the beginning. */
uint32_t counting_asked(void);

/* Whether tl_alloc could give out so many bytes. A large piece is address space alone: its pages
   become memory when somebody touches them. */
bool counting_can(size_t bytes);

/* Where memory was asked for. */
typedef struct {
    const char *file;
    int line;
} counting_place;

/* What lives: how many pieces, of how many bytes, where the oldest of them was asked for; and where
   anything was asked for last. */
typedef struct {
    uint32_t pieces;
    size_t bytes;
    counting_place oldest, last;
} counting_living;
counting_living counting_live(void);

/* From now on the program that is judged runs, or no longer does: malloc is seen while it does. */
void counting_watch(bool judged);

/* How often malloc and its like were called while it ran, but for tl_alloc. Where the first call
   came from is written to stderr, between two lines of COUNTING_MARK. */
uint32_t counting_elsewhere(void);
#define COUNTING_MARK "== memory from elsewhere ==\n"

/* malloc for the driver itself, which nobody counts. */
void *counting_own(size_t bytes);

#endif
