// Refused: asynchronous copies.
#error "opsmith's emulator does not run asynchronous copies (cooperative_groups/memcpy_async.h)"
