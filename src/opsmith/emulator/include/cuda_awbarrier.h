// Refused: asynchronous barriers.
#error "opsmith's emulator does not run asynchronous barriers (cuda_awbarrier.h)"
