// assert in a kernel: a fault with the place and the condition. (Not guarded: as with the system's, NDEBUG may change.)
#undef assert
#ifdef NDEBUG
#define assert(condition) (static_cast<void>(0))
#else
#define assert(condition) \
  ((condition) ? static_cast<void>(0) : opsmith::emulator::opsmith_assertion_failed(#condition, __FILE__, __LINE__))
#endif
