"""Prompts that differ and whose blocks have equal names: real collisions of the 64-bit hash.

FNV-1a is no strong hash. A message's hash is a sum, modulo 2**64, of its bytes' small effects, each
times a power of the prime; so which two messages meet is a question about short vectors of a
lattice, which an old laptop answers in a fraction of a second. Nobody has to wait for chance, and
whoever can choose his prompts can choose whose K and V he would like to read.

Blocks have 4 tokens.
"""

from itertools import chain, product

SIZE = 4

TWINS = (
    ([1997718337, 1693305158, 3629460265, 844247006],
     [1578782899, 1314538804, 2035099437, 1322779897]),
    ([3191373644, 33646361, 962817029, 3250411870],
     [3609477489, 1057305377, 1193232651, 3449923809]),
    ([1276187011, 2358650137, 4200734006, 4165388809],
     [1462567815, 2560105477, 2320786546, 4089537762]),
)
"""Two blocks for each of the first three places of a prompt. Twins have one name, and so their
children have one parent: whichever of the two stands in each place, the three names are the same.
"""

COUSINS = (
    [4160752254, 116852237, 1880178679, 269432120],
    [34568192, 4162648630, 108923148, 4050916638],
)
"""Two first blocks with different names that FNV-1a takes to one state: so whatever follows the
one has the same names, and the same tokens, as if it followed the other."""

CHAINS = [list(chain(*blocks)) for blocks in product(*TWINS)]
"""The eight prompts of three blocks that the twins make. All have the same three names."""
