/* The reference's CRC-32C over each line of the input, bytes in hex: whether an instruction did it,
   the CRC, and the CRC in plain C. */
#include <stdio.h>
#include <string.h>

#include "crc32c.h"

enum { LONGEST = 4096 };

int main(void) {
    static char line[2 * LONGEST + 2];
    static unsigned char memory[LONGEST];
    while (fgets(line, sizeof line, stdin)) {
        size_t n = strcspn(line, "\n") / 2;
        unsigned char *bytes = memory + LONGEST - n; /* so that the address is odd when n is */
        for (size_t i = 0; i < n; i++) {
            unsigned byte;
            if (sscanf(line + 2 * i, "%2x", &byte) != 1) return 1;
            bytes[i] = (unsigned char)byte;
        }
        printf("%d %08x %08x\n", crc32c_in_hardware(), ~crc32c_move(0xFFFFFFFF, bytes, n),
               ~crc32c_by_tables(0xFFFFFFFF, bytes, n));
    }
    return 0;
}
