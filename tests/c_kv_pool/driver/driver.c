/* A pool at the end of a pipe: one request a line, one answer a line.

   It is built with the sanitizers and the program that is judged, so whatever goes wrong ends this
   process and no other. A request is a word and its arguments; an answer is a status and what came
   of it. `driver.py` beside this folder is the other end. What the judged program prints goes where
   the sanitizers report, and it has nothing to read. A request that takes more seconds of processor
   time than the process was started with ends it by SIGPROF. */
#define _XOPEN_SOURCE 700
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "counting.h"
#include "tinyllm/kv_pool.h"

/* How the sanitizers behave: no search for leaks, which needs rights that a box has not (the
   counting allocator is exact anyway), and an end at the first report. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
    return "detect_leaks=0:abort_on_error=0:exitcode=99:hard_rss_limit_mb=900:"
           "allocator_may_return_null=1:detect_stack_use_after_return=1:color=never";
}
const char *__ubsan_default_options(void);
const char *__ubsan_default_options(void) {
    return "print_stacktrace=1:halt_on_error=1:color=never";
}
#if defined(SANITIZED)
size_t __sanitizer_get_current_allocated_bytes(void);
static size_t heap(void) {
    return __sanitizer_get_current_allocated_bytes();
}
#else
static size_t heap(void) {
    return 0;
}
#endif

enum { POOLS = 4, UNTOUCHED = 0xA5 };
static const uint32_t unset = 0xDEADBEEF;
static tl_kv_pool *pools[POOLS], *p; /* `p` is the one that a request is about */
static tl_kv_cfg cfgs[POOLS], *dims; /* what it was made with */
static const tl_kv_cfg *kept[POOLS], **keeps; /* where tl_kv_pool_cfg first said that this is */
static char *rest;                   /* of the request's words */
static FILE *answers;

static const char *word(void) {
    const char *next = strtok_r(rest, " \n", &rest);
    return next ? next : "";
}

static uint64_t number(void) {
    return strtoull(word(), NULL, 0);
}

static uint32_t number32(void) {
    return (uint32_t)number();
}

/* Write a part of an answer. */
#define TELL(...) fprintf(answers, __VA_ARGS__)

static void say(tl_status status) {
    TELL("%s", tl_status_name(status));
}

/* A status; on success the number in its place, on failure whether it was written to. */
static void say_number(tl_status status, uint32_t got) {
    say(status);
    if (status == TL_OK) TELL(" %" PRIu32, got);
    else if (got != unset) TELL(" touched");
}

static void tell_hex(const unsigned char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        fputc("0123456789abcdef"[bytes[i] >> 4], answers);
        fputc("0123456789abcdef"[bytes[i] & 15], answers);
    }
}

static unsigned nibble(char digit) {
    return (unsigned)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

/* The bytes of a word of hex, at an address that is `skew` past an aligned one, with nothing
   behind them. *block is what to free. */
static unsigned char *bytes_of(const char *hex, size_t skew, size_t *n, unsigned char **block) {
    *n = strlen(hex) / 2;
    *block = counting_own(*n + skew);
    for (size_t i = 0; i < *n; i++) {
        (*block)[skew + i] = (unsigned char)(nibble(hex[2 * i]) << 4 | nibble(hex[2 * i + 1]));
    }
    return *block + skew;
}

/* Memory for so many things, NULL where nothing is behind the pointer. */
static void *room_for(size_t count, size_t size) {
    return count ? counting_own(count * size) : NULL;
}

static uint32_t *numbers(uint32_t *n) {
    size_t room = rest ? strlen(rest) + 1 : 1;
    uint32_t *found = counting_own(room * sizeof *found);
    for (*n = 0; rest && rest[strspn(rest, " \n")];) found[(*n)++] = number32();
    uint32_t *exact = room_for(*n, sizeof *exact); /* so that a read past them is seen */
    for (uint32_t i = 0; i < *n; i++) exact[i] = found[i];
    free(found);
    return exact;
}

static void do_create(void) {
    tl_kv_cfg cfg = {number32(), number32(), number32(), number32(), number32(),
                     (int32_t)number32(), number32()};
    tl_kv_pool *const none = (tl_kv_pool *)(void *)&cfg, *made = none; /* no pool lies there */
    tl_status status = tl_kv_pool_create(&cfg, &made);
    say(status);
    if (status != TL_OK) {
        if (made != none) TELL(" touched");
        return;
    }
    p = made;
    *dims = cfg;
    *keeps = NULL;
}

static void do_destroy(void) {
    tl_kv_pool_destroy(p);
    p = NULL;
    say(TL_OK);
}

/* The configuration, as the address that was returned first shows it before this call. */
static void do_cfg(void) {
    tl_kv_cfg before = *keeps ? **keeps : *dims;
    const tl_kv_cfg *cfg = tl_kv_pool_cfg(p);
    if (!cfg) {
        TELL("NULL");
        return;
    }
    if (!*keeps) *keeps = cfg;
    if (memcmp(&before, dims, sizeof before) != 0) cfg = &before;
    TELL("TL_OK %u %u %u %u %u %d %u", cfg->n_blocks, cfg->block_tokens, cfg->n_layers,
           cfg->n_kv_heads, cfg->head_dim, cfg->dtype, cfg->format);
}

static void do_alloc(void) {
    uint32_t n = number32();
    uint32_t room = n < dims->n_blocks ? n : dims->n_blocks;
    uint32_t *ids = room_for(room, sizeof *ids);
    for (uint32_t i = 0; i < room; i++) ids[i] = unset;
    tl_status status = tl_kv_alloc(p, n, ids);
    say(status);
    bool touched = false;
    for (uint32_t i = 0; i < room; i++) {
        if (status == TL_OK) TELL(" %" PRIu32, ids[i]);
        touched |= ids[i] != unset;
    }
    if (status != TL_OK && touched) TELL(" touched");
    free(ids);
}

static void do_ref(void) {
    tl_error_clear();
    tl_kv_ref(p, number32());
    say(tl_error_status());
}

static void do_unref(void) {
    say(tl_kv_unref(p, number32()));
}

static void do_cow(void) {
    uint32_t copy = unset;
    tl_status status = tl_kv_cow(p, number32(), &copy);
    say_number(status, copy);
}

static void do_set_fill(void) {
    uint32_t id = number32();
    say(tl_kv_set_fill(p, id, number32()));
}

static void do_fill(void) {
    uint32_t n_tokens = unset;
    tl_status status = tl_kv_fill(p, number32(), &n_tokens);
    say_number(status, n_tokens);
}

static void do_ref_count(void) {
    uint32_t n = unset;
    tl_status status = tl_kv_ref_count(p, number32(), &n);
    say_number(status, n);
}

static void do_register(void) {
    uint32_t id = number32();
    say(tl_kv_register(p, id, number()));
}

static void do_lookup(void) {
    uint32_t id = unset;
    tl_status status = tl_kv_lookup(p, number(), &id);
    say_number(status, id);
}

static void do_hash_of(void) {
    uint64_t hash = unset;
    tl_status status = tl_kv_hash_of(p, number32(), &hash);
    say(status);
    if (status == TL_OK) TELL(" %" PRIu64, hash);
    else if (hash != unset) TELL(" touched");
}

static void do_block_ptr(void) {
    uint32_t id = number32(), layer = number32();
    const char *first = tl_kv_block_ptr(p, 0, 0, 0);
    const char *here = tl_kv_block_ptr(p, id, layer, (int)(int64_t)number());
    if (here) TELL("TL_OK %lld", (long long)((intptr_t)here - (intptr_t)first));
    else TELL("NULL");
}

static void do_block_bytes(void) {
    TELL("TL_OK %zu", tl_kv_block_bytes(p));
}

static void do_stats(void) {
    tl_kv_stats stats = {unset, unset, unset, unset};
    tl_kv_stats_get(p, &stats);
    TELL("TL_OK %u %u %u %u", stats.free, stats.used, stats.cached, stats.evictions);
}

typedef void visit(unsigned char *slab, size_t bytes, int byte);

/* Visit all slabs of a block, in the order of the envelope. */
static void each_slab(uint32_t id, visit *act, int byte) {
    size_t bytes = (size_t)dims->n_kv_heads * dims->block_tokens * dims->head_dim * 2;
    for (uint32_t layer = 0; layer < dims->n_layers; layer++) {
        for (int is_v = 0; is_v < 2; is_v++) {
            unsigned char *slab = tl_kv_block_ptr(p, id, layer, is_v);
            if (!slab) return;
            act(slab, bytes, byte);
        }
    }
}

static void put(unsigned char *slab, size_t bytes, int byte) {
    memset(slab, byte, bytes);
}

static void tell(unsigned char *slab, size_t bytes, int byte) {
    (void)byte;
    tell_hex(slab, bytes);
}

static size_t others; /* bytes of a block that are not as asked */

static void compare(unsigned char *slab, size_t bytes, int byte) {
    for (size_t i = 0; i < bytes; i++) others += slab[i] != byte;
}

static void do_write(void) {
    uint32_t id = number32();
    each_slab(id, put, (int)number());
    say(TL_OK);
}

static void do_read(void) {
    say(TL_OK);
    fputc(' ', answers);
    each_slab(number32(), tell, 0);
}

/* others ID BYTE: how many bytes of a block are not this one. */
static void do_others(void) {
    uint32_t id = number32();
    others = 0;
    each_slab(id, compare, (int)number());
    TELL("TL_OK %zu", others);
}

/* export CAP SKEW IDS...: status, size, what the buffer holds up to it, and whether the rest of
   the buffer is as it was. */
static void do_export(void) {
    size_t cap = (size_t)number(), skew = (size_t)number(), written = 0;
    uint32_t n, *ids = numbers(&n);
    unsigned char *block = room_for(cap + skew, 1), *buffer = block ? block + skew : NULL;
    for (size_t i = 0; i < cap + skew; i++) block[i] = UNTOUCHED;
    tl_status status = tl_kv_export(p, ids, n, buffer, cap, &written);
    size_t used = status == TL_OK ? written : 0;
    say(status);
    TELL(" %zu", written);
    bool touched = false;
    for (size_t i = used; i < cap; i++) touched |= buffer[i] != UNTOUCHED;
    for (size_t i = 0; i < skew; i++) touched |= block[i] != UNTOUCHED;
    TELL(touched ? " touched" : " whole");
    if (status == TL_OK) {
        fputc(' ', answers);
        tell_hex(buffer, used < cap ? used : cap);
    }
    free(block);
    free(ids);
}

static void do_export_bytes(void) {
    tl_kv_cfg cfg = {1, number32(), number32(), number32(), number32(), TL_F16, TL_KV_FORMAT};
    size_t bytes = unset;
    tl_status status = tl_kv_export_bytes(&cfg, number32(), &bytes);
    say(status);
    if (status == TL_OK) TELL(" %zu", bytes);
}

/* import SKEW HEX: status and ids. The ids have as much room as the header asks for, as long as
   that is no more than the pool has. */
static void do_import(void) {
    size_t skew = (size_t)number(), n;
    unsigned char *block, *bytes = bytes_of(word(), skew, &n, &block);
    uint32_t room = 0;
    for (int i = 0; n >= 12 && i < 4; i++) room |= (uint32_t)bytes[8 + i] << 8 * i;
    if (room > dims->n_blocks) room = dims->n_blocks;
    uint32_t *ids = room_for(room, sizeof *ids);
    for (uint32_t i = 0; i < room; i++) ids[i] = unset;
    tl_status status = tl_kv_import(p, n ? bytes : NULL, n, ids);
    say(status);
    bool touched = false;
    for (uint32_t i = 0; i < room; i++) {
        if (status == TL_OK) TELL(" %" PRIu32, ids[i]);
        touched |= ids[i] != unset;
    }
    if (status != TL_OK && touched) TELL(" touched");
    free(ids);
    free(block);
}

static void do_crc32c(void) {
    size_t skew = (size_t)number(), n;
    uint32_t crc = number32();
    unsigned char *block, *bytes = bytes_of(word(), skew, &n, &block);
    TELL("TL_OK %" PRIu32, tl_crc32c(bytes, n, crc));
    free(block);
}

static void do_block_hash(void) {
    uint64_t parent = number();
    uint32_t n, *tokens = numbers(&n);
    if (!tokens) tokens = counting_own(0); /* where NULL is not allowed */
    TELL("TL_OK %" PRIu64, tl_kv_block_hash(parent, tokens, n));
    free(tokens);
}

static void do_slot(void) {
    say(tl_error_status());
    TELL(" %s", tl_error_message());
}

static void do_poison(void) {
    say(tl_fail(TL_EBUSY, "an earlier failure"));
}

static void do_clear(void) {
    tl_error_clear();
    say(TL_OK);
}

static void do_fail(void) {
    counting_fail(number32());
    say(TL_OK);
}

static void do_live(void) {
    counting_living live = counting_live();
    TELL("TL_OK %" PRIu32 " %zu %zu %" PRIu32 " %" PRIu32 " %s:%d %s:%d", live.pieces, live.bytes,
         heap(), counting_asked(), counting_elsewhere(), live.oldest.file, live.oldest.line,
         live.last.file, live.last.line);
}

static void do_room(void) {
    say(counting_can((size_t)number()) ? TL_OK : TL_ENOMEM);
}

static const struct {
    const char *word;
    void (*act)(void);
} requests[] = {
    {"create", do_create}, {"destroy", do_destroy}, {"cfg", do_cfg}, {"alloc", do_alloc},
    {"ref", do_ref}, {"unref", do_unref}, {"cow", do_cow}, {"set_fill", do_set_fill},
    {"fill", do_fill}, {"ref_count", do_ref_count}, {"register", do_register},
    {"lookup", do_lookup}, {"hash_of", do_hash_of}, {"block_ptr", do_block_ptr},
    {"block_bytes", do_block_bytes}, {"stats_get", do_stats}, {"write", do_write},
    {"read", do_read}, {"others", do_others},
    {"export", do_export}, {"export_bytes", do_export_bytes}, {"import", do_import},
    {"crc32c", do_crc32c}, {"block_hash", do_block_hash}, {"slot", do_slot},
    {"poison", do_poison}, {"clear", do_clear}, {"fail", do_fail}, {"live", do_live},
    {"room", do_room},
};

static bool answer(char *request) {
    rest = request;
    unsigned which = number32() % POOLS;
    const char *wanted = word();
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        if (strcmp(requests[i].word, wanted) == 0) {
            p = pools[which];
            keeps = &kept[which];
            dims = &cfgs[which];
            counting_watch(true);
            requests[i].act();
            counting_watch(false);
            pools[which] = p;
            if (tl_error_status() == TL_ETODO) TELL(" TODO %s", tl_error_message());
            return true;
        }
    }
    return false;
}

/* Move a stream of this process to where the judged program does not find it. */
static FILE *moved(int from, const char *mode, char *buffer, size_t bytes) {
    FILE *stream = fdopen(dup(from), mode);
    if (!stream) abort();
    setvbuf(stream, buffer, _IOFBF, bytes); /* so that stdio allocates nothing that is counted */
    return stream;
}

/* Allow so many seconds of processor time from now on; 0: no limit. Wall time would not do: it
   passes while other processes run. */
static void give(long seconds) {
    struct itimerval given = {.it_value = {.tv_sec = seconds}};
    if (setitimer(ITIMER_PROF, &given, NULL) != 0) abort();
}

int main(int argc, char **argv) {
    long patience = argc > 1 ? strtol(argv[1], NULL, 10) : 0;
    static char in[1 << 16], out[1 << 16];
    FILE *asked = moved(STDIN_FILENO, "r", in, sizeof in);
    answers = moved(STDOUT_FILENO, "w", out, sizeof out);
    int nothing = open("/dev/null", O_RDONLY);
    if (dup2(nothing, STDIN_FILENO) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) abort();
    setvbuf(stdin, NULL, _IONBF, 0);
    setvbuf(stdout, NULL, _IONBF, 0); /* so that nothing is lost at a sudden end */
    size_t room = 4 << 20; /* so that it need not grow, either */
    char *line = malloc(room);
    counting_begin();
    TELL("ready\n");
    fflush(answers);
    while (getline(&line, &room, asked) > 0) {
        give(patience);
        if (!answer(line)) TELL("what?");
        give(0);
        fputc('\n', answers);
        fflush(answers);
    }
    free(line);
    return 0;
}
