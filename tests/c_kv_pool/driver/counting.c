#define _DEFAULT_SOURCE /* mmap without swap space */
#define _DARWIN_C_SOURCE
#include "counting.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tinyllm/alloc.h"

enum { MOST = 4096 }; /* pieces that may live at once; a pool has a handful */
static const size_t large = (size_t)1 << 30;

typedef struct {
    void *memory;
    size_t bytes;
    counting_place place;
} piece;

static piece pieces[MOST];
static counting_place last = {"", 0};
static uint32_t n_pieces, asked, until_failure, elsewhere;
static volatile bool watching; /* no compiler knows that malloc looks at it */

#if defined(SANITIZED)
typedef void took_hook(const volatile void *, size_t);
typedef void gave_hook(const volatile void *);
int __sanitizer_install_malloc_and_free_hooks(took_hook *took, gave_hook *gave);
void __sanitizer_print_stack_trace(void);
void __sanitizer_set_death_callback(void (*die)(void));

static void mark(void) {
    if (write(STDERR_FILENO, COUNTING_MARK, sizeof COUNTING_MARK - 1) < 0) abort();
}

static void took(const volatile void *memory, size_t bytes) {
    (void)memory;
    (void)bytes;
    if (!watching || elsewhere++) return;
    watching = false;
    mark();
    __sanitizer_print_stack_trace();
    mark();
    watching = true;
}

static void gave(const volatile void *memory) {
    (void)memory;
}

static void die(void) {
    for (uint32_t i = 0; i < n_pieces; i++) {
        fprintf(stderr, "== piece %p %zu %s:%d\n", pieces[i].memory, pieces[i].bytes,
                pieces[i].place.file, pieces[i].place.line);
    }
}

static void ask_the_sanitizer(void) {
    __sanitizer_set_death_callback(die);
    __sanitizer_install_malloc_and_free_hooks(took, gave);
}
#else
static void ask_the_sanitizer(void) {}
#endif

static void *mapped(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void *cleared(size_t bytes) {
    const bool watched = watching;
    watching = false;
    void *memory = bytes < large ? calloc(1, bytes) : mapped(bytes);
    watching = watched;
    return memory;
}

static void *count(void *context, size_t bytes, const char *file, int line) {
    (void)context;
    asked++;
    last = (counting_place){file, line};
    if (until_failure && --until_failure == 0) return NULL;
    void *memory = n_pieces < MOST ? cleared(bytes) : NULL;
    if (memory) pieces[n_pieces++] = (piece){memory, bytes, last};
    return memory;
}

/* What is not ours is freed all the same: a sanitizer then says where that came from. */
static void discount(void *context, void *memory) {
    (void)context;
    size_t bytes = 0;
    for (uint32_t i = 0; i < n_pieces; i++) {
        if (pieces[i].memory == memory) {
            bytes = pieces[i].bytes;
            for (uint32_t j = i + 1; j < n_pieces; j++) pieces[j - 1] = pieces[j];
            n_pieces--;
            break;
        }
    }
    if (bytes < large) free(memory);
    else munmap(memory, bytes);
}

void counting_begin(void) {
    static const tl_allocator counting = {count, discount, NULL};
    tl_allocator_set(&counting);
    ask_the_sanitizer();
}

void counting_fail(uint32_t n) {
    until_failure = n;
}

uint32_t counting_asked(void) {
    return asked;
}

bool counting_can(size_t bytes) {
    void *memory = mapped(bytes);
    if (memory) munmap(memory, bytes);
    return memory != NULL;
}

counting_living counting_live(void) {
    counting_living live = {n_pieces, 0, n_pieces ? pieces[0].place : last, last};
    for (uint32_t i = 0; i < n_pieces; i++) live.bytes += pieces[i].bytes;
    return live;
}

void counting_watch(bool judged) {
    watching = judged;
}

uint32_t counting_elsewhere(void) {
    return elsewhere;
}

void *counting_own(size_t bytes) {
    const bool watched = watching;
    watching = false;
    void *memory = malloc(bytes);
    watching = watched;
    return memory;
}
