/* Memory, from an allocator that can be replaced: by one that counts, by one that fails.

   All memory of a pool comes from here. Whoever calls malloc instead is not counted, and leaks
   unseen. */
#ifndef TINYLLM_ALLOC_H
#define TINYLLM_ALLOC_H

#include <stddef.h>

/* Return memory for `count` things of `size` bytes each, all of it zero, aligned for any type;
   NULL when there is none, or when count * size is more than a size_t can say. NULL for no bytes,
   too. The slot is not touched: the caller knows what the memory was for. */
#define tl_alloc(count, size) tl_alloc_at(count, size, __FILE__, __LINE__)
void *tl_alloc_at(size_t count, size_t size, const char *file, int line);

/* Give memory back. NULL is harmless. */
void tl_free(void *memory);

/* An allocator: `alloc` returns zeroed memory or NULL and is told who asks. It is never asked for
   0 bytes, and its `free` never gets NULL. */
typedef struct {
    void *(*alloc)(void *context, size_t bytes, const char *file, int line);
    void (*free)(void *context, void *memory);
    void *context;
} tl_allocator;

/* Put another allocator in the place of the system's; NULL puts that one back. Not while other
   threads allocate, and memory must be freed by the allocator that it came from. */
void tl_allocator_set(const tl_allocator *allocator);

#endif
