#include "tests/failing_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <new>

namespace {

thread_local int64_t left = -1;  // allocations before the next failure; -1: none fails
thread_local bool fails_on = false, any_failed = false;

bool fails() {
  if (left < 0) return false;
  if (left > 0) {
    --left;
    return false;
  }
  any_failed = true;
  left = fails_on ? 0 : -1;
  return true;
}

}  // namespace

namespace hotrow {

FailingMemory::FailingMemory(int64_t from, bool all) {
  any_failed = false;
  fails_on = all;
  left = from;
}
FailingMemory::~FailingMemory() { left = -1; }
bool FailingMemory::failed() const { return any_failed; }

}  // namespace hotrow

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

void* operator new(std::size_t bytes) {
  void* memory = fails() ? nullptr : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  void* memory = nullptr;
  if (fails() || posix_memalign(&memory, static_cast<std::size_t>(alignment), bytes) != 0) {
    throw std::bad_alloc();
  }
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

extern "C" void* mmap(void* address, size_t bytes, int protection, int flags, int file,
                      off_t offset) noexcept {
  if (fails()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(
      ::syscall(SYS_mmap, address, bytes, protection, flags, file, offset));
}

#endif
