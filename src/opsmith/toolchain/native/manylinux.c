// What the headers of newer systems refer to and glibc 2.28 does not have. All of it stays inside the library that it is
// linked into (toolchain/manylinux.py).

#define _GNU_SOURCE
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#define INSIDE __attribute__((visibility("hidden")))

extern int __xstat(int version, const char* path, struct stat* result);
extern int __lxstat(int version, const char* path, struct stat* result);
extern int __fxstat(int version, int file, struct stat* result);
extern int __fxstatat(int version, int directory, const char* path, struct stat* result, int flags);

#ifdef __x86_64__
enum { kStatVersion = 1 };
#else
enum { kStatVersion = 0 };
#endif

INSIDE char __libc_single_threaded = 0;  // so that reference counts are always atomic

INSIDE int stat(const char* path, struct stat* result) { return __xstat(kStatVersion, path, result); }
INSIDE int lstat(const char* path, struct stat* result) { return __lxstat(kStatVersion, path, result); }
INSIDE int fstat(int file, struct stat* result) { return __fxstat(kStatVersion, file, result); }
INSIDE int fstatat(int directory, const char* path, struct stat* result, int flags) {
  return __fxstatat(kStatVersion, directory, path, result, flags);
}

// A condition variable waits on CLOCK_REALTIME unless it was created for another clock.
INSIDE int pthread_cond_clockwait(
    pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock, const struct timespec* until) {
  struct timespec now, wall, target;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &wall);
  long long nanoseconds = (until->tv_sec - now.tv_sec) * 1000000000ll + (until->tv_nsec - now.tv_nsec) + wall.tv_nsec;
  target.tv_sec = wall.tv_sec + nanoseconds / 1000000000;
  target.tv_nsec = nanoseconds % 1000000000;
  if (target.tv_nsec < 0) {
    target.tv_nsec += 1000000000;
    target.tv_sec -= 1;
  }
  return pthread_cond_timedwait(condition, mutex, &target);
}
