#include "tinyllm/alloc.h"

#include <stdint.h>
#include <stdlib.h>

static void *system_alloc(void *context, size_t bytes, const char *file, int line) {
    (void)context;
    (void)file;
    (void)line;
    return calloc(1, bytes);
}

static void system_free(void *context, void *memory) {
    (void)context;
    free(memory);
}

static const tl_allocator system_allocator = {system_alloc, system_free, NULL};
static tl_allocator current = {system_alloc, system_free, NULL};

void *tl_alloc_at(size_t count, size_t size, const char *file, int line) {
    if (count == 0 || size == 0 || count > SIZE_MAX / size) return NULL;
    return current.alloc(current.context, count * size, file, line);
}

void tl_free(void *memory) {
    if (memory) current.free(current.context, memory);
}

void tl_allocator_set(const tl_allocator *allocator) {
    current = allocator ? *allocator : system_allocator;
}
