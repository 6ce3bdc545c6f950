"""What one pickle may hold and cost, whoever reads it."""

PICKLE_MAX_BYTES = 100 << 20  # of one pickle
PICKLE_MAX_RATIO = 16  # bytes of a pickle for each that it takes in an archive; 6 are usual
PICKLE_SMALL = 4 << 10  # bytes that it may have in any case
PICKLE_MAX_PAYLOAD = 64 << 20  # bytes of one string
PICKLE_MAX_WORKING_SET = 512 << 20  # bytes that all values take together
PICKLE_MAX_GROWTH = 320  # of those bytes for each of the pickle: an opcode takes no more
PICKLE_FREE_BYTES = 8 << 20  # bytes that they may take besides
PICKLE_MAX_DEPTH = 256  # of values in values
PICKLE_MAX_OPCODES = 16 << 20  # of one pickle, and the ends of its frames; a tensor takes 30
PICKLE_MAX_ITEMS = 8 << 20  # of one list, tuple, set or dictionary, which holds each twice at first
PICKLE_MAX_INT = 1024  # bytes of one integer; a larger one could not even be printed
