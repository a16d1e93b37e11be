"""What the tests of the names need. Another folder has helpers of the same name."""

FIRST = 0
TOKENS = [1, 2, 3, 4, 5]
NAMES = [0xA91AB0C1027B9366, 0x03DF829571605C60]
