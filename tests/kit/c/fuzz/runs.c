/* In the place of libFuzzer where there is none: bytes drawn from a seed, a given number of times.

       runs COUNT FIRST_SEED */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t state;

static uint64_t draw(void) { /* xorshift64* (Vigna) */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * UINT64_C(2685821657736338717);
}

int main(int argc, char **argv) {
    uint64_t runs = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
    uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    static uint8_t bytes[512];
    for (uint64_t run = first; run < first + runs; run++) {
        state = run * UINT64_C(0x9e3779b97f4a7c15) | 1;
        size_t size = 1 + draw() % sizeof bytes;
        for (size_t i = 0; i < size; i++) bytes[i] = (uint8_t)(draw() >> 32);
        fprintf(stderr, "\rseed %llu", (unsigned long long)run);
        LLVMFuzzerTestOneInput(bytes, size);
    }
    fprintf(stderr, "\n");
    printf("%llu runs, nothing found\n", (unsigned long long)runs);
    return 0;
}
