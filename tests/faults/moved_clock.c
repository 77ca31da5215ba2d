// Moves the wall clock of one process, by LD_PRELOAD: HOTROW_CLOCK names a file with eight bytes,
// the seconds by which it is ahead, which may change at any time. Monotonic clocks stay. Waits until
// a time of the wall clock, by the kernel's own, get the time without the offset.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

// No monotonic clock is so far from the boot.
#define IS_WALL(t) ((t)->tv_sec > 500000000)

static volatile long long *ahead;

__attribute__((constructor)) static void open_file(void) {
  const char *name = getenv("HOTROW_CLOCK");
  int fd = name == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  void *file = mmap(NULL, sizeof(long long), PROT_READ, MAP_SHARED, fd, 0);
  if (file != MAP_FAILED) ahead = file;
  close(fd);
}

static long long offset(void) { return ahead == NULL ? 0 : *ahead; }

int clock_gettime(clockid_t clock, struct timespec *t) {
  static int (*real)(clockid_t, struct timespec *);
  if (real == NULL) real = dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(clock, t);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    t->tv_sec += offset();
  }
  return result;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  t->tv_sec = now.tv_sec;
  t->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *t) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (t != NULL) *t = now.tv_sec;
  return now.tv_sec;
}

static struct timespec of_kernel(const struct timespec *t) {
  struct timespec moved = *t;
  moved.tv_sec -= offset();
  return moved;
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict end) {
  static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
  // There is an older one of the same name.
  if (real == NULL) real = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (real == NULL) real = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
  if (!IS_WALL(end)) return real(condition, mutex, end);
  const struct timespec moved = of_kernel(end);
  return real(condition, mutex, &moved);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict end) {
  static int (*real)(sem_t *, const struct timespec *);
  if (real == NULL) real = dlsym(RTLD_NEXT, "sem_timedwait");
  if (!IS_WALL(end)) return real(semaphore, end);
  const struct timespec moved = of_kernel(end);
  return real(semaphore, &moved);
}

// Of Abseil, which waits by futexes of its own.
long syscall(long number, ...) {
  static long (*real)(long, ...);
  if (real == NULL) real = dlsym(RTLD_NEXT, "syscall");
  long a[6];
  va_list list;
  va_start(list, number);
  for (int i = 0; i < 6; ++i) a[i] = va_arg(list, long);
  va_end(list);
  struct timespec moved;
  if (number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME) &&
      a[3] != 0 && IS_WALL((const struct timespec *)a[3])) {
    moved = of_kernel((const struct timespec *)a[3]);
    a[3] = (long)&moved;
  }
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
