// Refused: asynchronous copies.
#error "opsmith's emulator does not run asynchronous copies (cuda_pipeline_primitives.h)"
