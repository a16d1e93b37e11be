/* CRC-32C three times: byte by byte, by eight tables, by the processor's own instruction. Which of
   them runs is decided once, when the program is loaded. */
#include "crc32c.h"

#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define HAVE_INSTRUCTION 1
#define WITH_INSTRUCTION __attribute__((target("sse4.2")))
#elif defined(__aarch64__) && (defined(__linux__) || defined(__APPLE__))
#define HAVE_INSTRUCTION 1
#define WITH_INSTRUCTION
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

enum { POLYNOMIAL_BITS = 8, STRIDE = 8 };
static const uint32_t polynomial = 0x82F63B78;

/* tables[k][b]: what the byte b does to the state when k zero bytes follow it. */
static uint32_t tables[STRIDE][256];
static bool in_hardware;

static uint32_t step(uint32_t state, unsigned char byte) {
    return state >> 8 ^ tables[0][(state ^ byte) & 0xFF];
}

static bool has_instruction(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("sse4.2");
#elif defined(__aarch64__) && defined(__linux__)
    return (getauxval(AT_HWCAP) & (1UL << 7)) != 0; /* HWCAP_CRC32 */
#elif defined(__aarch64__) && defined(__APPLE__)
    return true; /* every one of them */
#else
    return false;
#endif
}

/* Before anything else runs, so that no call ever meets half a table. */
__attribute__((constructor)) static void prepare(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t state = byte;
        for (int bit = 0; bit < POLYNOMIAL_BITS; bit++) {
            state = state >> 1 ^ (state & 1 ? polynomial : 0);
        }
        tables[0][byte] = state;
    }
    for (int k = 1; k < STRIDE; k++) {
        for (int byte = 0; byte < 256; byte++) {
            tables[k][byte] = step(tables[k - 1][byte], 0);
        }
    }
    in_hardware = has_instruction();
}

/* Eight bytes as a number, the first one lowest, at any address and on any machine. */
static uint64_t eight(const unsigned char *bytes) {
    uint64_t number = 0;
    for (int i = 0; i < STRIDE; i++) number |= (uint64_t)bytes[i] << 8 * i;
    return number;
}

uint32_t crc32c_by_tables(uint32_t state, const unsigned char *bytes, size_t n) {
    for (; n >= STRIDE; n -= STRIDE, bytes += STRIDE) {
        uint64_t word = eight(bytes) ^ state;
        state = 0;
        for (int k = 0; k < STRIDE; k++) {
            state ^= tables[STRIDE - 1 - k][word >> 8 * k & 0xFF];
        }
    }
    while (n--) state = step(state, *bytes++);
    return state;
}

#if defined(HAVE_INSTRUCTION)
WITH_INSTRUCTION static uint32_t by_instruction(uint32_t state, const unsigned char *bytes,
                                                size_t n) {
    for (; n >= STRIDE; n -= STRIDE, bytes += STRIDE) {
        uint64_t word;
        memcpy(&word, bytes, sizeof word);
#if defined(__x86_64__)
        state = (uint32_t)_mm_crc32_u64(state, word);
#else
        /* No intrinsic: compilers differ in how one function may use what others may not. */
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(state) : "r"(word));
#endif
    }
    while (n--) state = step(state, *bytes++);
    return state;
}
#endif

uint32_t crc32c_move(uint32_t state, const unsigned char *bytes, size_t n) {
#if defined(HAVE_INSTRUCTION)
    if (in_hardware) return by_instruction(state, bytes, n);
#endif
    return crc32c_by_tables(state, bytes, n);
}

bool crc32c_in_hardware(void) {
    return in_hardware;
}
